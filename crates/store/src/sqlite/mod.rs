//! The store in one SQLite file.
//!
//! One connection writes, every write transaction takes the write lock when it begins, and readers have
//! connections of their own. A lock file makes sure that one process at a time has the store open.

mod claim;
mod connection;
mod guest;
mod log_room;
mod readers;
mod session;
mod writer;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_domain::StoreError;
use sqlx::{Connection as _, SqliteConnection};

use crate::{
    failure::Failure,
    migrate, savepoint,
    session::{Operation, Shared},
};
#[cfg(all(feature = "postgres", feature = "mysql"))]
pub(crate) use connection::writer as open_writer;
use guest::GuestSession;
use readers::Readers;
pub(crate) use session::statements;
use writer::Writer;

/// The file, its one writer and its readers.
#[derive(Debug, Clone)]
pub(crate) struct SqliteDatabase {
    path: PathBuf,
    writer: Writer,
    readers: Readers,
    pub(crate) shared: Arc<Shared>,
    /// Held as long as the store is open, but by who only stands beside the process that works with it.
    lock: Option<Arc<File>>,
}

impl SqliteDatabase {
    pub(crate) fn open(url: &str, is_beside: bool, shared: Shared) -> Result<Self, Failure> {
        let path = connection::path_of(url)?;
        let lock = if is_beside {
            None
        } else {
            Some(Arc::new(lock_file(&path)?))
        };
        let (writer, readers) = (Writer::start(&path, !is_beside)?, Readers::new(&path));
        Ok(Self {
            path,
            writer,
            readers,
            shared: Arc::new(shared),
            lock,
        })
    }

    pub(crate) async fn migrate(&self) -> Result<(), StoreError> {
        let mut connection = connection::connect(&self.path)
            .await
            .map_err(migrate::failed)?;
        let answer = migrate::run(&mut connection, &migrate::SQLITE).await;
        closed(connection, answer).await
    }

    pub(crate) async fn schema(&self) -> Result<migrate::SchemaState, StoreError> {
        let mut connection = connection::connect(&self.path)
            .await
            .map_err(migrate::failed)?;
        let answer = migrate::state(&mut connection, &migrate::SQLITE).await;
        closed(connection, answer).await
    }

    pub(crate) async fn check_schema(&self) -> Result<(), StoreError> {
        let mut connection = connection::connect(&self.path)
            .await
            .map_err(migrate::failed)?;
        let answer = migrate::check(&mut connection, &migrate::SQLITE).await;
        closed(connection, answer).await
    }

    /// Runs the operation in a transaction of the one writer.
    pub(crate) async fn transact<O: Operation>(
        &self,
        operation: &Arc<O>,
    ) -> Result<O::Output, Failure> {
        self.writer.transact(&self.shared, operation).await
    }

    /// Runs an operation that only reads.
    pub(crate) async fn read<O: Operation>(
        &self,
        operation: &Arc<O>,
    ) -> Result<O::Output, Failure> {
        self.readers.read(&self.shared, operation).await
    }

    /// Runs the operation in a transaction that the caller has open. One that is refused leaves nothing behind.
    pub(crate) async fn within<O: Operation>(
        &self,
        connection: &mut SqliteConnection,
        operation: &O,
    ) -> Result<O::Output, Failure> {
        savepoint::set::<sqlx::Sqlite>(connection).await?;
        let ran = operation
            .run(&mut GuestSession::new(connection, &self.shared))
            .await;
        let settled = savepoint::settle::<sqlx::Sqlite, _>(connection, ran).await;
        settled.map_err(|failure| match failure {
            Failure::Again(why) => {
                Failure::Again(format!("begin the transaction with BEGIN IMMEDIATE: {why}"))
            }
            failure @ Failure::Store(_) => failure,
        })
    }

    /// Prepares every statement and answers with those that the database refuses.
    pub(crate) async fn refused_statements(&self) -> Result<Vec<String>, Failure> {
        let connection = connection::writer(&self.path)?;
        let refusal = |sql: &crate::catalog::Sql| {
            let refused = connection.prepare(&sql.text).err()?;
            Some(format!("{}: {refused}", sql.name))
        };
        Ok(statements().filter_map(refusal).collect())
    }

    /// The settings on which a commit's durability rests.
    pub(crate) async fn durability(&self) -> Result<String, Failure> {
        let connection = connection::writer(&self.path)?;
        let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
        let synchronous: i64 =
            connection.pragma_query_value(None, "synchronous", |row| row.get(0))?;
        Ok(format!("{mode}, synchronous={synchronous}"))
    }

    pub(crate) async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
        if let Some(Err(error)) = self.lock.as_ref().map(|lock| lock.unlock()) {
            tracing::warn!(%error, "the lock of the store's file could not be released");
        }
    }
}

/// The answer, once the connection that it came by is closed. One that is only dropped is closed some time later, and whoever
/// closes the store meanwhile is not the last on the file.
async fn closed<T>(
    connection: SqliteConnection,
    answer: Result<T, StoreError>,
) -> Result<T, StoreError> {
    let closed = connection.close().await.map_err(migrate::failed);
    answer.and_then(|answer| closed.map(|()| answer))
}

/// Takes the file's lock for this process, or says who must let go.
fn lock_file(path: &Path) -> Result<File, StoreError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let shown = path.display();
    let file = File::create(&name).map_err(|error| {
        StoreError::Unavailable(format!(
            "{shown}: cannot create its lock file, so make its folder first: {error}"
        ))
    })?;
    file.try_lock().map_err(|_| {
        StoreError::Unavailable(format!(
            "{shown} is open in another process, or was opened twice in this one. An embedded store has one process: stop the \
             other one, or use PostgreSQL; within a process share what is open (`Longhaul::client`)"
        ))
    })?;
    Ok(file)
}
