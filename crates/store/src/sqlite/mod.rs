//! The store in one SQLite file.
//!
//! One connection writes, every write transaction takes the write lock when it begins, and readers have
//! connections of their own. A lock file makes sure that one process at a time has the store open.

mod session;
mod writer;

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::StoreError;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Connection as _, Executor as _, SqliteConnection};

use crate::{
    catalog::Sql,
    failure::Failure,
    migrate,
    session::{Operation, Shared},
};
use session::SqliteSession;
pub(crate) use session::statements;
use writer::Writer;

/// How long SQLite itself waits for a writer outside this process before we try again.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Readers beside the one writer.
const READERS: u32 = 4;

/// The file, its one writer and its readers.
#[derive(Debug, Clone)]
pub(crate) struct SqliteDatabase {
    writer: Writer,
    readers: SqlitePool,
    pub(crate) shared: Arc<Shared>,
    /// Held as long as the store is open.
    lock: Arc<File>,
}

impl SqliteDatabase {
    pub(crate) async fn open(url: &str, shared: Shared) -> Result<Self, Failure> {
        let options = connect_options(url)?;
        let lock = lock_file(options.get_filename())?;
        let read_only = options.clone().read_only(true);
        let writer = Writer::open(options).await?;
        let readers = SqlitePoolOptions::new().max_connections(READERS).connect_lazy_with(read_only);
        Ok(Self { writer, readers, shared: Arc::new(shared), lock: Arc::new(lock) })
    }

    pub(crate) async fn migrate(&self) -> Result<(), StoreError> {
        let mut connection = self.writer.connect().await.map_err(migrate::failed)?;
        migrate::run(&mut connection, &migrate::SQLITE).await
    }

    pub(crate) async fn check_schema(&self) -> Result<(), StoreError> {
        let mut connection = self.writer.connect().await.map_err(migrate::failed)?;
        migrate::check(&mut connection, &migrate::SQLITE).await
    }

    /// Runs the operation in a transaction of the one writer.
    pub(crate) async fn transact<O: Operation>(&self, operation: &O) -> Result<O::Output, Failure> {
        self.writer.transact(&self.shared, operation).await
    }

    /// Runs an operation that only reads.
    pub(crate) async fn read<O: Operation>(&self, operation: &O) -> Result<O::Output, Failure> {
        let mut reader = self.readers.acquire().await?;
        operation.run(&mut SqliteSession::new(&mut reader, &self.shared)).await
    }

    /// Runs the operation in a transaction that the caller has open.
    pub(crate) async fn within<O: Operation>(
        &self,
        connection: &mut SqliteConnection,
        operation: &O,
    ) -> Result<O::Output, Failure> {
        operation.run(&mut SqliteSession::new(connection, &self.shared)).await
    }

    /// Prepares every statement and answers with those that the database refuses.
    pub(crate) async fn refused_statements(&self) -> Result<Vec<String>, Failure> {
        let mut connection = self.writer.connect().await?;
        let mut refused = Vec::new();
        for sql in statements() {
            if let Err(error) = connection.prepare(text(sql)).await {
                refused.push(format!("{}: {error}", sql.name));
            }
        }
        Ok(refused)
    }

    /// The settings on which a commit's durability rests.
    pub(crate) async fn durability(&self) -> Result<String, Failure> {
        let mut connection = self.writer.connect().await?;
        let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut connection).await?;
        let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(&mut connection).await?;
        Ok(format!("{mode}, synchronous={synchronous}"))
    }

    pub(crate) async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
        if let Err(error) = self.lock.unlock() {
            tracing::warn!(%error, "the lock of the store's file could not be released");
        }
    }
}

/// How the writer is connected.
fn connect_options(url: &str) -> Result<SqliteConnectOptions, Failure> {
    Ok(SqliteConnectOptions::new()
        .filename(path_of(url)?)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT)
        .statement_cache_capacity(256)
        .row_buffer_size(4_096)
        .pragma("cache_size", "-16384")
        .pragma("wal_autocheckpoint", "8000")
        .pragma("temp_store", "memory"))
}

/// A connection like the writer.
pub(crate) async fn connect(url: &str) -> Result<SqliteConnection, Failure> {
    Ok(SqliteConnection::connect_with(&connect_options(url)?).await?)
}

/// The file that a `sqlite:` URL names.
fn path_of(url: &str) -> Result<PathBuf, StoreError> {
    let path = url.strip_prefix("sqlite://").or_else(|| url.strip_prefix("sqlite:")).unwrap_or(url);
    let path = path.split('?').next().unwrap_or_default();
    if path.is_empty() || path == ":memory:" {
        let allowed = "sqlite://path/to/file.db (a store in memory would not be durable)";
        return Err(longhaul_domain::Invalid::new("LONGHAUL_STORE", format!("is {url:?}"), allowed).into());
    }
    Ok(PathBuf::from(path))
}

/// Takes the file's lock for this process, or says who must let go.
fn lock_file(path: &std::path::Path) -> Result<File, StoreError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let shown = path.display();
    let file = File::create(&name)
        .map_err(|error| StoreError::Unavailable(format!("{shown}: cannot create its lock file: {error}")))?;
    file.try_lock().map_err(|_| {
        StoreError::Unavailable(format!(
            "{shown} is open in another process; an embedded store has one process, stop the other or use PostgreSQL"
        ))
    })?;
    Ok(file)
}

/// The statement as sqlx wants it.
fn text(sql: &'static Sql) -> sqlx::SqlStr {
    sqlx::SqlSafeStr::into_sql_str(sql.text.as_str())
}
