//! The store in one SQLite file.
//!
//! One connection writes, every write transaction takes the write lock when it begins, and readers have
//! connections of their own. A lock file makes sure that one process at a time has the store open.

mod session;

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::StoreError;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Connection as _, Executor as _, SqliteConnection};
use tokio::sync::Mutex;

use crate::{
    catalog::Sql,
    failure::Failure,
    migrate,
    session::{Operation, Shared},
};
use session::SqliteSession;
pub(crate) use session::statements;

/// How long SQLite itself waits for a writer outside this process before we try again.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Readers beside the one writer.
const READERS: u32 = 4;

/// The file, its one writer and its readers.
#[derive(Debug, Clone)]
pub(crate) struct SqliteDatabase {
    /// Absent after a failure that left it in doubt; the next user opens it anew.
    writer: Arc<Mutex<Option<SqliteConnection>>>,
    options: Arc<SqliteConnectOptions>,
    readers: SqlitePool,
    pub(crate) shared: Arc<Shared>,
    /// Held as long as the store is open.
    _lock: Arc<File>,
}

impl SqliteDatabase {
    pub(crate) async fn open(url: &str, shared: Shared) -> Result<Self, Failure> {
        let options = connect_options(url)?;
        let lock = lock_file(options.get_filename())?;
        let writer = SqliteConnection::connect_with(&options).await?;
        let read_only = options.clone().read_only(true);
        let readers = SqlitePoolOptions::new().max_connections(READERS).connect_lazy_with(read_only);
        let writer = Arc::new(Mutex::new(Some(writer)));
        Ok(Self { writer, options: Arc::new(options), readers, shared: Arc::new(shared), _lock: Arc::new(lock) })
    }

    pub(crate) async fn migrate(&self) -> Result<(), StoreError> {
        let mut place = self.writer.lock().await;
        let mut writer = self.take_writer(&mut place).await.map_err(migrate::failed)?;
        migrate::run(&mut writer, &migrate::SQLITE).await?;
        *place = Some(writer);
        Ok(())
    }

    pub(crate) async fn check_schema(&self) -> Result<(), StoreError> {
        let mut place = self.writer.lock().await;
        let mut writer = self.take_writer(&mut place).await.map_err(migrate::failed)?;
        let checked = migrate::check(&mut writer, &migrate::SQLITE).await;
        *place = Some(writer);
        checked
    }

    /// Takes the writer out of its place. Whoever is dropped or fails before putting it back leaves the place empty,
    /// and the next one starts with a connection that has no transaction open.
    async fn take_writer(&self, place: &mut Option<SqliteConnection>) -> Result<SqliteConnection, sqlx::Error> {
        match place.take() {
            Some(writer) => Ok(writer),
            None => SqliteConnection::connect_with(&self.options).await,
        }
    }

    /// Runs the operation in one transaction of the one writer. A refusal rolls back and keeps the connection; a
    /// rollback that fails (SQLite rolls back by itself when the disk is full) gives it up.
    pub(crate) async fn transact<O: Operation>(&self, operation: &O) -> Result<O::Output, Failure> {
        let mut place = self.writer.lock().await;
        let mut writer = self.take_writer(&mut place).await?;
        if let Err(error) = writer.execute("BEGIN IMMEDIATE").await {
            *place = Some(writer);
            return Err(error.into());
        }
        let ran = operation.run(&mut SqliteSession::new(&mut writer, &self.shared)).await;
        let ended = match &ran {
            Ok(_) => writer.execute("COMMIT").await,
            Err(_) => writer.execute("ROLLBACK").await,
        };
        match ended {
            Ok(_) => *place = Some(writer),
            Err(error) if ran.is_ok() => return Err(error.into()),
            Err(error) => tracing::warn!(%error, "the writer could not roll back and is opened anew"),
        }
        ran
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
        let mut writer = SqliteConnection::connect_with(&self.options).await?;
        let mut refused = Vec::new();
        for sql in statements() {
            if let Err(error) = writer.prepare(text(sql)).await {
                refused.push(format!("{}: {error}", sql.name));
            }
        }
        Ok(refused)
    }

    /// The settings on which a commit's durability rests.
    pub(crate) async fn durability(&self) -> Result<String, Failure> {
        let mut writer = SqliteConnection::connect_with(&self.options).await?;
        let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut writer).await?;
        let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(&mut writer).await?;
        Ok(format!("{mode}, synchronous={synchronous}"))
    }

    pub(crate) async fn close(&self) {
        self.readers.close().await;
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
