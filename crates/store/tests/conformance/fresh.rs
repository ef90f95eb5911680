//! A fresh, empty database for each case, on the servers that `make test` starts or the environment
//! names.

use std::sync::Arc;

use longhaul_domain::event::OutboxPolicy;
use longhaul_store::{SqlStore, StoreOptions};
use longhaul_testkit::{
    clock::TestClock,
    fixture::{Fixture, FixtureFactory},
};
use sqlx::{Connection, Executor};

/// A database under test.
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

    pub(crate) fn factory(self) -> FixtureFactory {
        Arc::new(move |outbox| {
            Box::pin(async move {
                let (store, clock, database) = self.store(outbox).await;
                Fixture::new(Arc::new(store), clock, Some(Box::new(database)))
            })
        })
    }

    /// A store on a fresh database. The database goes when the last value does.
    pub(crate) async fn store(self, outbox: OutboxPolicy) -> (SqlStore, TestClock, FreshDatabase) {
        let database = FreshDatabase::make(self).await;
        let clock = TestClock::default();
        let store = SqlStore::open(&database.url, options(&clock, outbox))
            .await
            .expect("a fresh database opens");
        (store, clock, database)
    }
}

pub(crate) fn options(clock: &TestClock, outbox: OutboxPolicy) -> StoreOptions {
    StoreOptions {
        outbox,
        max_connections: 12,
        clock: Arc::new(clock.clone()),
        clock_offset: clock.offset(),
        ..StoreOptions::default()
    }
}

/// A database that is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct FreshDatabase {
    pub(crate) url: String,
    pub(crate) backend: Backend,
    name: String,
}

impl FreshDatabase {
    pub(crate) async fn make(backend: Backend) -> Self {
        let name = format!("longhaul_test_{}", random_id().simple());
        let url = match backend {
            Backend::Sqlite => {
                let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(&name);
                std::fs::create_dir_all(&folder).unwrap();
                format!("sqlite://{}/tasks.db", folder.display())
            }
            Backend::Postgres | Backend::MySql => {
                administer(backend, format!("CREATE DATABASE {name}")).await;
                with_database(&server(backend), &name)
            }
        };

        Self { url, backend, name }
    }
}

impl FreshDatabase {
    /// Runs a statement as another program would, over a connection of its own.
    pub(crate) async fn execute(&self, statement: &str) {
        self.try_execute(statement)
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
    }

    pub(crate) async fn try_execute(&self, statement: &str) -> Result<(), String> {
        let sql = sqlx::AssertSqlSafe(statement.to_owned());
        let told = |error: sqlx::Error| error.to_string();
        match self.backend {
            Backend::Sqlite => {
                let mut connection = sqlx::SqliteConnection::connect(&self.url)
                    .await
                    .map_err(told)?;
                connection.execute(sql).await.map(drop).map_err(told)
            }
            Backend::Postgres => {
                let mut connection = sqlx::PgConnection::connect(&self.url).await.map_err(told)?;
                connection.execute(sql).await.map(drop).map_err(told)
            }
            Backend::MySql => {
                let mut connection = sqlx::MySqlConnection::connect(&self.url)
                    .await
                    .map_err(told)?;
                connection.execute(sql).await.map(drop).map_err(told)
            }
        }
    }

    /// The one number that a query answers with.
    pub(crate) async fn count(&self, query: &str) -> i64 {
        let sql = sqlx::AssertSqlSafe(query.to_owned());
        let number = match self.backend {
            Backend::Sqlite => {
                let mut connection = sqlx::SqliteConnection::connect(&self.url).await.unwrap();
                sqlx::query_scalar(sql).fetch_one(&mut connection).await
            }
            Backend::Postgres => {
                let mut connection = sqlx::PgConnection::connect(&self.url).await.unwrap();
                sqlx::query_scalar(sql).fetch_one(&mut connection).await
            }
            Backend::MySql => {
                let mut connection = sqlx::MySqlConnection::connect(&self.url).await.unwrap();
                sqlx::query_scalar(sql).fetch_one(&mut connection).await
            }
        };

        number.unwrap_or_else(|error| panic!("{query}: {error}"))
    }
}

impl Drop for FreshDatabase {
    fn drop(&mut self) {
        let statement = match self.backend {
            Backend::Sqlite => {
                let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(&self.name);
                let _ = std::fs::remove_dir_all(folder);
                return;
            }
            Backend::Postgres => format!("DROP DATABASE {} WITH (FORCE)", self.name),
            Backend::MySql => format!("DROP DATABASE {}", self.name),
        };

        let backend = self.backend;
        // A drop can come inside a runtime, where nothing may block on another: a thread of its own
        // may.
        let dropped = std::thread::spawn(move || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap()
                .block_on(administer(backend, statement));
        });

        let _ = dropped.join();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place where these tests draw random numbers"
)]
pub(crate) fn random_id() -> uuid::Uuid {
    uuid::Uuid::from_u128(rand::random())
}

/// The server's URL, or how to get one.
pub(crate) fn server(backend: Backend) -> String {
    let variable = match backend {
        Backend::Sqlite => unreachable!("SQLite has no server"),
        Backend::Postgres => "LONGHAUL_TEST_POSTGRES",
        Backend::MySql => "LONGHAUL_TEST_MYSQL",
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where these tests read the environment"
    )]
    let url = std::env::var(variable);
    url.unwrap_or_else(|_| {
        panic!(
            "{variable} is not set: run `make test`, or `make services` and `. target/services.env`"
        )
    })
}

async fn administer(backend: Backend, statement: String) {
    let sql = sqlx::AssertSqlSafe(statement);
    match backend {
        Backend::Sqlite => {}
        Backend::Postgres => {
            let mut connection = sqlx::PgConnection::connect(&server(backend))
                .await
                .expect("PostgreSQL answers");
            connection.execute(sql).await.unwrap();
        }
        Backend::MySql => {
            let mut connection = sqlx::MySqlConnection::connect(&server(backend))
                .await
                .expect("MySQL answers");
            connection.execute(sql).await.unwrap();
        }
    }
}

/// The same URL with another database.
fn with_database(url: &str, name: &str) -> String {
    let (before, _) = url.rsplit_once('/').expect("a URL with a path");
    format!("{before}/{name}")
}
