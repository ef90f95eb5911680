//! A fresh database for each test.

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
}

/// A database, and a folder for other files. Dropping it removes both.
pub(crate) struct Database {
    pub(crate) url: String,
    pub(crate) folder: tempfile::TempDir,
    drop: Option<(Backend, String)>,
}

impl Database {
    pub(crate) async fn make(backend: Backend) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let unique = folder
            .path()
            .file_name()
            .unwrap()
            .to_string_lossy()
            .to_lowercase();

        let letters: String = unique.chars().filter(char::is_ascii_alphanumeric).collect();
        let name = format!("longhaul_test_{}_{letters}", std::process::id());
        if backend == Backend::Sqlite {
            let url = format!("sqlite://{}", folder.path().join("data/tasks.db").display());
            return Self {
                url,
                folder,
                drop: None,
            };
        }

        administer(backend, format!("CREATE DATABASE {name}")).await;
        let server = server(backend);
        let url = format!(
            "{}/{name}",
            server.rsplit_once('/').expect("a URL with a database").0
        );

        Self {
            url,
            folder,
            drop: Some((backend, name)),
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let Some((backend, name)) = self.drop.take() else {
            return;
        };
        let force = if backend == Backend::Postgres {
            " WITH (FORCE)"
        } else {
            ""
        };
        let statement = format!("DROP DATABASE {name}{force}");

        // A drop can happen inside a runtime, which must not block on another. A thread can.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(administer(backend, statement));
        });

        let _ = dropped.join();
    }
}

fn server(backend: Backend) -> String {
    let variable = if backend == Backend::Postgres {
        "LONGHAUL_TEST_POSTGRES"
    } else {
        "LONGHAUL_TEST_MYSQL"
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "these tests read the environment only here"
    )]
    let url = std::env::var(variable);
    url.unwrap_or_else(|_| {
        panic!(
            "{variable} is not set: run `make test`, or `make services` and `. target/services.env`"
        )
    })
}

/// Runs a statement as the server's administrator.
pub(crate) async fn administer(backend: Backend, statement: String) {
    let sql = sqlx::AssertSqlSafe(statement);
    if backend == Backend::Postgres {
        sqlx::PgConnection::connect(&server(backend))
            .await
            .expect("PostgreSQL answers")
            .execute(sql)
            .await
            .unwrap();
    } else {
        sqlx::MySqlConnection::connect(&server(backend))
            .await
            .expect("MySQL answers")
            .execute(sql)
            .await
            .unwrap();
    }
}
