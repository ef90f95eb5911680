//! The application's own tables, in Longhaul's database: `sqlite://`, `postgres://` or `mysql://`.
//!
//! Every statement is a file in `sql/`, in the SQL that the three databases share. The databases
//! differ in how a parameter is marked, which [`statement`] handles, and in how a transaction
//! begins. SQLite has one writer. So a transaction that will write begins with `BEGIN IMMEDIATE`
//! and waits for Longhaul's writer, instead of failing later.

mod import;
mod novels;
mod scenes;
mod statement;
mod transaction;

use std::time::Duration;

use sqlx::{
    MySqlPool, PgPool, SqlitePool,
    error::DatabaseError,
    migrate::{MigrateError, Migration, MigrationType, Migrator},
    mysql::MySqlPoolOptions,
    postgres::PgPoolOptions,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

pub(crate) use novels::NewNovel;
pub use novels::{ChapterView, NovelCard, NovelView, SceneCard};
pub use scenes::Scene;
use transaction::Row;
pub(crate) use transaction::Transaction;

/// How long a connection waits for another that writes to the same SQLite file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections of the application; Longhaul has its own.
const CONNECTIONS: u32 = 8;
/// The table of the migrations that have run. Longhaul has its own.
const MIGRATIONS: &str = "novel_migrations";

/// An error of the application's tables.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// The database refused a statement, or is unavailable.
    #[error("the database of the novels: {0}")]
    Database(#[from] sqlx::Error),
    /// The tables could not be migrated.
    #[error("the tables of the novels could not be made: {0}")]
    Migration(#[from] MigrateError),
    /// Longhaul refused the task, and nothing was written.
    #[error(transparent)]
    Longhaul(#[from] longhaul::StoreError),
    /// The URL is not of one of the three databases.
    #[error(
        "the novels must be in Longhaul's database; \
         allowed: sqlite://, postgres://, mysql://"
    )]
    UnknownDatabase,
}

impl LibraryError {
    /// Whether a retry may succeed: the server is unavailable, or another transaction held a lock.
    pub(crate) fn is_transient(&self) -> bool {
        let Self::Database(error) = self else {
            return false;
        };
        if matches!(
            error,
            sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed
        ) {
            return true;
        }

        // Serialization failures and deadlocks of the servers, and the two "busy" codes of SQLite.
        let code = error.as_database_error().and_then(DatabaseError::code);
        code.is_some_and(|code| ["40001", "40P01", "5", "517"].contains(&code.as_ref()))
    }

    /// Whether the row was there already.
    pub(crate) fn is_duplicate(&self) -> bool {
        self.database_error()
            .is_some_and(DatabaseError::is_unique_violation)
    }

    /// Whether the row that this one belongs to is missing.
    pub(crate) fn is_missing_parent(&self) -> bool {
        self.database_error()
            .is_some_and(DatabaseError::is_foreign_key_violation)
    }

    fn database_error(&self) -> Option<&dyn DatabaseError> {
        match self {
            Self::Database(error) => error.as_database_error(),
            Self::Migration(_) | Self::Longhaul(_) | Self::UnknownDatabase => None,
        }
    }
}

/// The novels, chapters and scenes. Clones share one pool of connections.
#[derive(Debug, Clone)]
pub struct Library(Pool);

#[derive(Debug, Clone)]
enum Pool {
    Sqlite(SqlitePool),
    Postgres(PgPool),
    MySql(MySqlPool),
}

impl Library {
    /// Opens the database and migrates the application's tables.
    pub async fn open(url: &str) -> Result<Self, LibraryError> {
        let scheme = url.split(':').next().unwrap_or_default();
        let pool = match scheme {
            "sqlite" => Pool::Sqlite(open_sqlite(url).await?),
            "postgres" | "postgresql" => Pool::Postgres(open_postgres(url).await?),
            "mysql" | "mariadb" => Pool::MySql(open_mysql(url).await?),
            _ => return Err(LibraryError::UnknownDatabase),
        };

        Ok(Self(pool))
    }

    /// Begins a transaction that will write.
    pub(crate) async fn begin_write(&self) -> Result<Transaction, LibraryError> {
        Ok(match &self.0 {
            Pool::Sqlite(pool) => Transaction::Sqlite(pool.begin_with("BEGIN IMMEDIATE").await?),
            Pool::Postgres(pool) => Transaction::Postgres(pool.begin().await?),
            Pool::MySql(pool) => Transaction::MySql(pool.begin().await?),
        })
    }

    /// Begins a transaction that only reads. On SQLite it does not wait for the writer.
    async fn begin_read(&self) -> Result<Transaction, LibraryError> {
        Ok(match &self.0 {
            Pool::Sqlite(pool) => Transaction::Sqlite(pool.begin().await?),
            Pool::Postgres(pool) => Transaction::Postgres(pool.begin().await?),
            Pool::MySql(pool) => Transaction::MySql(pool.begin().await?),
        })
    }
}

async fn open_sqlite(url: &str) -> Result<SqlitePool, LibraryError> {
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
    Ok(pool)
}

async fn open_postgres(url: &str) -> Result<PgPool, LibraryError> {
    let pool = PgPoolOptions::new()
        .max_connections(CONNECTIONS)
        .connect(url)
        .await?;

    migrations(include_str!("../../migrations/postgres/0001_novels.sql"))
        .run(&pool)
        .await?;
    Ok(pool)
}

async fn open_mysql(url: &str) -> Result<MySqlPool, LibraryError> {
    let pool = MySqlPoolOptions::new()
        .max_connections(CONNECTIONS)
        .connect(url)
        .await?;

    migrations(include_str!("../../migrations/mysql/0001_novels.sql"))
        .run(&pool)
        .await?;
    Ok(pool)
}

/// The file that a URL names, exactly as Longhaul reads it.
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
