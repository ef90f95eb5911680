//! The store in one SQLite file.
//!
//! One connection writes, and each write transaction takes the write lock when it begins. Readers
//! have their own connections. A lock file keeps the store to one process at a time.

mod claim;
mod connection;
mod file;
mod guest;
mod log_room;
mod readers;
mod session;
mod writer;

use std::sync::Arc;

use longhaul_domain::StoreError;
use sqlx::{Connection as _, SqliteConnection};

use crate::{
    migrate, savepoint,
    session::{Operation, Shared},
    sql_error::SqlError,
};
pub(crate) use connection::LOCK_WAIT;
#[cfg(all(feature = "postgres", feature = "mysql"))]
pub(crate) use connection::writer as open_writer;
use file::{Lock, StoreFile};
use guest::GuestSession;
use readers::Readers;
pub(crate) use session::statements;
use writer::Writer;

/// The file, its writer and its readers.
#[derive(Debug, Clone)]
pub(crate) struct SqliteDatabase {
    file: Arc<StoreFile>,
    writer: Writer,
    readers: Readers,
    pub(crate) shared: Arc<Shared>,
    /// Held while the store is open. `None` if the store was opened beside another process.
    lock: Option<Arc<Lock>>,
}

impl SqliteDatabase {
    pub(crate) fn open(url: &str, is_beside: bool, shared: Shared) -> Result<Self, SqlError> {
        let path = file::resolved(&connection::path_of(url)?);
        let lock = if is_beside {
            None
        } else {
            Some(Arc::new(Lock::take(&path)?))
        };
        let file = Arc::new(StoreFile::find_or_make(&path)?);
        let writer = Writer::start(&file, lock.as_ref(), &shared)?;
        let readers = Readers::new(&file);

        Ok(Self {
            file,
            writer,
            readers,
            shared: Arc::new(shared),
            lock,
        })
    }

    pub(crate) async fn migrate(&self) -> Result<(), StoreError> {
        let mut connection = self.connect().await?;
        let answer = migrate::run(&mut connection, &migrate::SQLITE).await;
        closed(connection, answer).await?;
        self.check_statements().await
    }

    pub(crate) async fn schema(&self) -> Result<migrate::SchemaState, StoreError> {
        let mut connection = self.connect().await?;
        let answer = migrate::state(&mut connection, &migrate::SQLITE).await;
        closed(connection, answer).await
    }

    pub(crate) async fn check_schema(&self) -> Result<(), StoreError> {
        let mut connection = self.connect().await?;
        let answer = migrate::check(&mut connection, &migrate::SQLITE).await;
        closed(connection, answer).await?;
        self.check_statements().await
    }

    async fn connect(&self) -> Result<SqliteConnection, StoreError> {
        self.file.check()?;
        connection::connect(self.file.path())
            .await
            .map_err(migrate::failed)
    }

    /// Refuses a schema of the right version that lacks a table or a column. Anybody can change a
    /// file; without this, the store would accept work and then fail.
    async fn check_statements(&self) -> Result<(), StoreError> {
        let refused = self.refused_statements().await?;
        match refused.first() {
            None => Ok(()),
            Some(first) => Err(StoreError::Unavailable(format!(
                "{} was changed by another program: {} statements cannot run, first {first}; \
                 restore a backup",
                self.file.path().display(),
                refused.len()
            ))),
        }
    }

    /// Runs the operation in a transaction of the writer.
    pub(crate) async fn transact<O: Operation>(
        &self,
        operation: &Arc<O>,
    ) -> Result<O::Output, SqlError> {
        self.writer.transact(&self.shared, operation).await
    }

    /// Runs an operation that only reads.
    pub(crate) async fn read<O: Operation>(
        &self,
        operation: &Arc<O>,
    ) -> Result<O::Output, SqlError> {
        self.readers.read(&self.shared, operation).await
    }

    /// Runs the operation in the caller's open transaction. A refused operation leaves no changes.
    pub(crate) async fn within<O: Operation>(
        &self,
        connection: &mut SqliteConnection,
        operation: &O,
    ) -> Result<O::Output, SqlError> {
        self.file.check()?;
        savepoint::set::<sqlx::Sqlite>(connection).await?;
        let ran = operation
            .run(&mut GuestSession::new(connection, &self.shared))
            .await;
        let settled = savepoint::settle::<sqlx::Sqlite, _>(connection, ran).await;

        settled.map_err(|failure| match failure {
            SqlError::LostRace(why) => {
                SqlError::LostRace(format!("begin the transaction with BEGIN IMMEDIATE: {why}"))
            }
            failure @ SqlError::Store(_) => failure,
        })
    }

    /// Prepares every statement and returns those that the database refuses.
    pub(crate) async fn refused_statements(&self) -> Result<Vec<String>, SqlError> {
        let connection = connection::writer(self.file.path())?;
        let refusal = |sql: &crate::catalog::Sql| {
            let refused = connection.prepare(&sql.text).err()?;
            Some(format!("{}: {refused}", sql.name))
        };
        Ok(statements().filter_map(refusal).collect())
    }

    /// The settings on which a commit's durability rests.
    pub(crate) async fn durability(&self) -> Result<String, SqlError> {
        let connection = connection::writer(self.file.path())?;
        let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
        let synchronous: i64 =
            connection.pragma_query_value(None, "synchronous", |row| row.get(0))?;
        Ok(format!("{mode}, synchronous={synchronous}"))
    }

    pub(crate) async fn close(&self) {
        // The writer closes last: SQLite removes the log with the last connection. The lock goes
        // after both, so that the next process finds the file closed.
        self.readers.close().await;
        self.writer.close().await;
        if let Some(lock) = &self.lock {
            lock.release();
        }
    }
}

/// Closes the connection, then returns the answer. A dropped connection closes later; until then
/// the store would not be the last user of the file.
async fn closed<T>(
    connection: SqliteConnection,
    answer: Result<T, StoreError>,
) -> Result<T, StoreError> {
    let closed = connection.close().await.map_err(migrate::failed);
    answer.and_then(|answer| closed.map(|()| answer))
}
