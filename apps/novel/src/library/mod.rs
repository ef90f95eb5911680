//! The application's own tables, in the database that Longhaul is on: `sqlite://`, `postgres://` or `mysql://`.
//!
//! Every statement is a file in `sql/`, kept to what the three databases have in common. They differ in how a parameter
//! is marked, which [`statement`] sees to, and in how a transaction begins: SQLite has one writer, so a transaction
//! that will write says so at once (`BEGIN IMMEDIATE`) and waits for Longhaul's own writer instead of failing later.

mod import;
mod novels;
mod scenes;
mod statement;
mod transaction;

use std::time::Duration;

use sqlx::{
    MySqlPool, PgPool, SqlitePool,
    migrate::{MigrateError, Migration, MigrationType, Migrator},
    mysql::MySqlPoolOptions,
    postgres::PgPoolOptions,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

pub(crate) use novels::NewNovel;
pub use novels::{ChapterView, NovelCard, NovelView, SceneCard};
pub use scenes::Scene;
pub(crate) use transaction::Transaction;

/// How long a connection waits for another that writes the same SQLite file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections of the application; Longhaul has its own.
const CONNECTIONS: u32 = 8;
/// Where it is written down which migrations have run. Longhaul's own are in another table.
const MIGRATIONS: &str = "novel_migrations";

/// Why the application's tables could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// The database refused or is away.
    #[error("the database of the novels: {0}")]
    Database(#[from] sqlx::Error),
    /// The tables could not be brought up to date.
    #[error("the tables of the novels could not be made: {0}")]
    Migration(#[from] MigrateError),
    /// Longhaul refused the task, so that nothing was written.
    #[error(transparent)]
    Longhaul(#[from] longhaul::StoreError),
    /// Not one of the three.
    #[error(
        "the novels are kept where Longhaul keeps its tasks; allowed: sqlite://, postgres://, mysql://"
    )]
    UnknownDatabase,
}

impl LibraryError {
    /// Whether the same may work a moment later: the server is away, or somebody else was in the way.
    pub(crate) fn is_passing(&self) -> bool {
        let Self::Database(error) = self else {
            return false;
        };
        if matches!(
            error,
            sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed
        ) {
            return true;
        }
        // Serialization failures and deadlocks of the servers, and SQLite's "busy" in its two kinds.
        let code = error
            .as_database_error()
            .and_then(sqlx::error::DatabaseError::code);
        code.is_some_and(|code| ["40001", "40P01", "5", "517"].contains(&code.as_ref()))
    }

    /// Whether somebody else has written the same row first.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(self, Self::Database(sqlx::Error::Database(error)) if error.is_unique_violation())
    }

    /// Whether what the row belongs to is not there.
    pub(crate) fn is_orphan(&self) -> bool {
        matches!(self, Self::Database(sqlx::Error::Database(error)) if error.is_foreign_key_violation())
    }
}

/// The novels, chapters and scenes. Cloning gives another hand on the same.
#[derive(Debug, Clone)]
pub struct Library(Pool);

#[derive(Debug, Clone)]
enum Pool {
    Sqlite(SqlitePool),
    Postgres(PgPool),
    MySql(MySqlPool),
}

impl Library {
    /// Opens the database and brings the application's tables up to date.
    pub async fn open(url: &str) -> Result<Self, LibraryError> {
        let scheme = url.split(':').next().unwrap_or_default();
        let pool = match scheme {
            "sqlite" => {
                let options = SqliteConnectOptions::new()
                    .filename(file_of(url))
                    .create_if_missing(true)
                    .journal_mode(SqliteJournalMode::Wal)
                    .synchronous(SqliteSynchronous::Full)
                    .busy_timeout(BUSY_TIMEOUT);
                let pool = SqlitePoolOptions::new()
                    .max_connections(CONNECTIONS)
                    .connect_with(options)
                    .await?;
                migrations(include_str!("../../migrations/sqlite/0001_novels.sql"))
                    .run(&pool)
                    .await?;
                Pool::Sqlite(pool)
            }
            "postgres" | "postgresql" => {
                let pool = PgPoolOptions::new()
                    .max_connections(CONNECTIONS)
                    .connect(url)
                    .await?;
                migrations(include_str!("../../migrations/postgres/0001_novels.sql"))
                    .run(&pool)
                    .await?;
                Pool::Postgres(pool)
            }
            "mysql" | "mariadb" => {
                let pool = MySqlPoolOptions::new()
                    .max_connections(CONNECTIONS)
                    .connect(url)
                    .await?;
                migrations(include_str!("../../migrations/mysql/0001_novels.sql"))
                    .run(&pool)
                    .await?;
                Pool::MySql(pool)
            }
            _ => return Err(LibraryError::UnknownDatabase),
        };
        Ok(Self(pool))
    }

    /// A transaction that will write.
    pub(crate) async fn begin(&self) -> Result<Transaction, LibraryError> {
        Ok(match &self.0 {
            Pool::Sqlite(pool) => Transaction::Sqlite(pool.begin_with("BEGIN IMMEDIATE").await?),
            Pool::Postgres(pool) => Transaction::Postgres(pool.begin().await?),
            Pool::MySql(pool) => Transaction::MySql(pool.begin().await?),
        })
    }

    /// A transaction that only looks: on SQLite it waits for nobody.
    async fn look(&self) -> Result<Transaction, LibraryError> {
        Ok(match &self.0 {
            Pool::Sqlite(pool) => Transaction::Sqlite(pool.begin().await?),
            Pool::Postgres(pool) => Transaction::Postgres(pool.begin().await?),
            Pool::MySql(pool) => Transaction::MySql(pool.begin().await?),
        })
    }
}

/// The file that a URL names, to the letter, as Longhaul reads it.
fn file_of(url: &str) -> &str {
    let path = url
        .strip_prefix("sqlite://")
        .or_else(|| url.strip_prefix("sqlite:"))
        .unwrap_or(url);
    path.split('?').next().unwrap_or(path)
}

fn migrations(novels: &'static str) -> Migrator {
    let files = [(1, "novels", novels)].map(|(version, name, sql)| {
        let text = sqlx::SqlSafeStr::into_sql_str(sql);
        Migration::new(version, name.into(), MigrationType::Simple, text, false)
    });
    let mut migrator = Migrator::with_migrations(files.into());
    migrator.dangerous_set_table_name(MIGRATIONS);
    migrator
}
