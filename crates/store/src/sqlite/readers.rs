//! The read-only connections. Readers and the writer never wait for each other.

use std::sync::{Arc, Mutex, PoisonError};

use longhaul_domain::StoreError;
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::{
    connection,
    file::StoreFile,
    session::{SqliteSession, at_once},
};
use crate::{
    session::{Operation, Shared},
    sql_error::SqlError,
};

/// Readers beside the one writer.
const READERS: usize = 4;

/// A few connections, opened on first use. Each read runs on a thread that may block.
#[derive(Debug, Clone)]
pub(super) struct Readers {
    file: Arc<StoreFile>,
    slots: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Readers {
    pub(super) fn new(file: &Arc<StoreFile>) -> Self {
        Self {
            file: Arc::clone(file),
            slots: Arc::new(Semaphore::new(READERS)),
            idle: Arc::default(),
        }
    }

    /// Runs an operation that only reads.
    pub(super) async fn read<O: Operation>(
        &self,
        shared: &Arc<Shared>,
        operation: &Arc<O>,
    ) -> Result<O::Output, SqlError> {
        let closed = |_| StoreError::Unavailable("the store is closed".to_owned());
        let place = Arc::clone(&self.slots)
            .acquire_owned()
            .await
            .map_err(closed)?;
        let own = self.clone();
        let shared = Arc::clone(shared);
        let operation = Arc::clone(operation);

        // rusqlite blocks, so the read runs on the blocking pool. It holds its place to the end,
        // even if the caller has gone.
        let reading = tokio::task::spawn_blocking(move || {
            let _place = place;
            let idle = own.idle().pop();
            let mut connection = idle.map_or_else(|| connection::reader(own.file.path()), Ok)?;
            // After the connection is open: it may be to another file.
            own.file.check()?;
            let read = at_once(operation.run(&mut SqliteSession::new(&mut connection, &shared)))?;
            own.idle().push(connection);
            Ok(read)
        });

        reading.await.map_err(SqlError::internal)?
    }

    /// Waits for running reads, closes the connections and refuses new reads.
    pub(super) async fn close(&self) {
        // With all slots taken, no connection is in use. An error means that it is closed already.
        let all = self.slots.acquire_many(READERS as u32).await;
        self.slots.close();
        self.idle().clear();
        drop(all);
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        // A panic cannot leave the list half changed, so a poisoned lock is still good.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
