//! Fresh databases on the servers that `make services` starts.

use anyhow::Context as _;
use longhaul_store::{SqlStore, StoreOptions};
use sqlx::{Connection as _, Executor as _};

/// A database that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    Sqlite,
    Postgres,
    MySql,
}

impl Backend {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::MySql => "mysql",
        }
    }

    /// Creates an empty database in place of an earlier one of this name.
    pub(crate) async fn fresh(self, name: &str) -> anyhow::Result<String> {
        let name = format!("longhaul_test_bench_{name}");
        match self {
            Self::Sqlite => {
                let folder = std::path::Path::new("target/bench-store");
                let _ = std::fs::remove_dir_all(folder.join(&name));
                std::fs::create_dir_all(folder.join(&name))?;
                Ok(format!("sqlite://{}/{name}/tasks.db", folder.display()))
            }
            Self::Postgres => {
                let server = server("LONGHAUL_TEST_POSTGRES")?;
                let mut connection = sqlx::PgConnection::connect(&server).await?;
                connection
                    .execute(safe(format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")))
                    .await?;
                connection
                    .execute(safe(format!("CREATE DATABASE {name}")))
                    .await?;

                with_database(&server, &name)
            }
            Self::MySql => {
                let server = server("LONGHAUL_TEST_MYSQL")?;
                let mut connection = sqlx::MySqlConnection::connect(&server).await?;
                connection
                    .execute(safe(format!("DROP DATABASE IF EXISTS {name}")))
                    .await?;
                connection
                    .execute(safe(format!("CREATE DATABASE {name}")))
                    .await?;

                with_database(&server, &name)
            }
        }
    }

    /// A store on an empty database.
    pub(crate) async fn store(self, name: &str) -> anyhow::Result<(SqlStore, String)> {
        let url = self.fresh(name).await?;
        let options = StoreOptions {
            max_connections: 20,
            ..StoreOptions::default()
        };
        Ok((SqlStore::open(&url, options).await?, url))
    }

    /// Fails unless the store's database has `n` tasks and all are completed.
    pub(crate) async fn expect_completed(self, url: &str, n: usize) -> anyhow::Result<()> {
        let query = "SELECT count(*), count(CASE WHEN status = 'COMPLETED' THEN 1 END) FROM tasks";
        let (all, completed): (i64, i64) = match self {
            Self::Sqlite => {
                sqlx::query_as(query)
                    .fetch_one(&mut sqlx::SqliteConnection::connect(url).await?)
                    .await?
            }
            Self::Postgres => {
                sqlx::query_as(query)
                    .fetch_one(&mut sqlx::PgConnection::connect(url).await?)
                    .await?
            }
            Self::MySql => {
                sqlx::query_as(query)
                    .fetch_one(&mut sqlx::MySqlConnection::connect(url).await?)
                    .await?
            }
        };

        let is_complete = (all, completed) == (n as i64, n as i64);
        anyhow::ensure!(
            is_complete,
            "{completed} of {all} tasks in the database are completed, not {n}"
        );

        Ok(())
    }

    /// Removes the database of `fresh`.
    pub(crate) async fn remove(self, name: &str) -> anyhow::Result<()> {
        let name = format!("longhaul_test_bench_{name}");
        match self {
            Self::Sqlite => Ok(std::fs::remove_dir_all(
                std::path::Path::new("target/bench-store").join(name),
            )?),
            Self::Postgres => {
                let mut connection =
                    sqlx::PgConnection::connect(&server("LONGHAUL_TEST_POSTGRES")?).await?;
                connection
                    .execute(safe(format!("DROP DATABASE {name} WITH (FORCE)")))
                    .await?;
                Ok(())
            }
            Self::MySql => {
                let mut connection =
                    sqlx::MySqlConnection::connect(&server("LONGHAUL_TEST_MYSQL")?).await?;
                connection
                    .execute(safe(format!("DROP DATABASE {name}")))
                    .await?;
                Ok(())
            }
        }
    }
}

/// Marks a statement that this program builds from its own names and numbers.
pub(crate) fn safe(statement: String) -> sqlx::AssertSqlSafe<String> {
    sqlx::AssertSqlSafe(statement)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the only function of this program that reads the environment"
)]
fn server(variable: &str) -> anyhow::Result<String> {
    std::env::var(variable)
        .with_context(|| format!("{variable} is not set; run this with `make bench-store`"))
}

fn with_database(url: &str, name: &str) -> anyhow::Result<String> {
    let (before, _) = url.rsplit_once('/').context("a URL with a path")?;
    Ok(format!("{before}/{name}"))
}
