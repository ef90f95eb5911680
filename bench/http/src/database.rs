//! Empty databases on the servers that `make services` starts.

use anyhow::Context as _;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};

const NAME: &str = "longhaul_test_bench_http";

/// A database that is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Backend {
    Sqlite,
    Postgres,
    MySql,
}

/// An empty database. Dropping it removes an SQLite file.
#[derive(Debug)]
pub(crate) struct Fresh {
    pub(crate) url: String,
    _folder: Option<tempfile::TempDir>,
}

impl Backend {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::MySql => "mysql",
        }
    }

    /// Creates an empty database in place of an earlier one.
    pub(crate) async fn fresh(self) -> anyhow::Result<Fresh> {
        let statements = [
            format!("DROP DATABASE IF EXISTS {NAME}"),
            format!("CREATE DATABASE {NAME}"),
        ];

        let server = match self {
            Self::Sqlite => {
                // Not in the folder for temporary files, which may be in memory.
                let folder = tempfile::tempdir_in("target")?;
                let url = format!("sqlite://{}", folder.path().join("tasks.db").display());
                return Ok(Fresh {
                    url,
                    _folder: Some(folder),
                });
            }
            Self::Postgres => {
                let server = server("LONGHAUL_TEST_POSTGRES")?;
                let mut connection = sqlx::PgConnection::connect(&server).await?;
                for statement in statements {
                    connection.execute(AssertSqlSafe(statement)).await?;
                }
                server
            }
            Self::MySql => {
                let server = server("LONGHAUL_TEST_MYSQL")?;
                let mut connection = sqlx::MySqlConnection::connect(&server).await?;
                for statement in statements {
                    connection.execute(AssertSqlSafe(statement)).await?;
                }
                server
            }
        };

        let (before, _) = server
            .rsplit_once('/')
            .context("the server's URL has no path")?;
        Ok(Fresh {
            url: format!("{before}/{NAME}"),
            _folder: None,
        })
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark gets its servers from the environment"
)]
pub(crate) fn server(variable: &str) -> anyhow::Result<String> {
    std::env::var(variable).with_context(|| format!("{variable} is not set; run `make bench-http`"))
}
