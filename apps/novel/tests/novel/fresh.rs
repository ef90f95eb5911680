//! A fresh, empty database for each case, on the servers that `make test` starts or the environment
//! names.

use sqlx::{Connection as _, Executor as _};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    Sqlite,
    Postgres,
    MySql,
}

impl Backend {
    pub(crate) const ALL: [Self; 3] = [Self::Sqlite, Self::Postgres, Self::MySql];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::MySql => "mysql",
        }
    }

    /// The server's URL, or how to get one.
    fn server(self) -> String {
        let variable = match self {
            Self::Sqlite => unreachable!("SQLite has no server"),
            Self::Postgres => "LONGHAUL_TEST_POSTGRES",
            Self::MySql => "LONGHAUL_TEST_MYSQL",
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "these tests read the environment only here"
        )]
        let url = std::env::var(variable);
        url.unwrap_or_else(|_| {
            panic!(
                "{variable} is not set: run `make test`, or `make services` and `. \
                 target/services.env`"
            )
        })
    }
}

/// A database that is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct FreshDatabase {
    pub(crate) url: String,
    backend: Backend,
    name: String,
}

impl FreshDatabase {
    pub(crate) async fn make(backend: Backend) -> Self {
        let name = format!("longhaul_novel_{}", uuid::Uuid::now_v7().simple());
        let url = match backend {
            Backend::Sqlite => {
                let folder = folder(&name);
                std::fs::create_dir_all(&folder).unwrap();
                format!("sqlite://{}/tasks.db", folder.display())
            }
            Backend::Postgres | Backend::MySql => {
                let server = backend.server();
                execute(backend, &server, format!("CREATE DATABASE {name}")).await;
                let (base, _) = server.rsplit_once('/').expect("a URL with a path");
                format!("{base}/{name}")
            }
        };

        Self { url, backend, name }
    }

    /// Runs a statement as another program would.
    pub(crate) async fn execute(&self, statement: &str) {
        execute(self.backend, &self.url, statement.to_owned()).await;
    }
}

impl Drop for FreshDatabase {
    fn drop(&mut self) {
        let statement = match self.backend {
            Backend::Sqlite => {
                let _ = std::fs::remove_dir_all(folder(&self.name));
                return;
            }
            Backend::Postgres => format!("DROP DATABASE {} WITH (FORCE)", self.name),
            Backend::MySql => format!("DROP DATABASE {}", self.name),
        };

        let backend = self.backend;
        // A drop may run inside a runtime, where blocking on another runtime panics. So the
        // statement runs on its own thread.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(execute(backend, &backend.server(), statement));
        });

        let _ = dropped.join();
    }
}

fn folder(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

async fn execute(backend: Backend, url: &str, statement: String) {
    let sql = sqlx::AssertSqlSafe(statement);
    match backend {
        Backend::Sqlite => {
            let mut connection = sqlx::SqliteConnection::connect(url).await.unwrap();
            connection.execute(sql).await.unwrap();
        }
        Backend::Postgres => {
            let mut connection = sqlx::PgConnection::connect(url).await.unwrap();
            connection.execute(sql).await.unwrap();
        }
        Backend::MySql => {
            let mut connection = sqlx::MySqlConnection::connect(url).await.unwrap();
            connection.execute(sql).await.unwrap();
        }
    }
}
