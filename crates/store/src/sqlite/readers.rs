//! The connections that only read: they never wait for the writer, nor it for them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_domain::StoreError;
use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::{
    connection,
    session::{SqliteSession, at_once},
};
use crate::{
    failure::Failure,
    session::{Operation, Shared},
};

/// Readers beside the one writer.
const READERS: usize = 4;

/// A few connections, opened when they are first needed, each used on whichever thread may block.
#[derive(Debug, Clone)]
pub(super) struct Readers {
    path: Arc<PathBuf>,
    places: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Readers {
    pub(super) fn new(path: &Path) -> Self {
        let path = Arc::new(path.to_owned());
        Self {
            path,
            places: Arc::new(Semaphore::new(READERS)),
            idle: Arc::default(),
        }
    }

    /// Runs an operation that only reads.
    pub(super) async fn read<O: Operation>(
        &self,
        shared: &Arc<Shared>,
        operation: &Arc<O>,
    ) -> Result<O::Output, Failure> {
        let closed = |_| StoreError::Unavailable("the store is closed".to_owned());
        let place = Arc::clone(&self.places)
            .acquire_owned()
            .await
            .map_err(closed)?;
        let (own, shared, operation) = (self.clone(), Arc::clone(shared), Arc::clone(operation));
        let reading = tokio::task::spawn_blocking(move || {
            let _place = place;
            let idle = own.idle().pop();
            let mut connection = idle.map_or_else(|| connection::reader(&own.path), Ok)?;
            let read = at_once(operation.run(&mut SqliteSession::new(&mut connection, &shared)))?;
            own.idle().push(connection);
            Ok(read)
        });
        reading.await.map_err(Failure::internal)?
    }

    /// Waits for whoever reads, and closes the connections. Nobody reads from now on.
    pub(super) async fn close(&self) {
        // All places at once: nobody has a connection then. An error means that it was closed before.
        let all = self.places.acquire_many(READERS as u32).await;
        self.places.close();
        self.idle().clear();
        drop(all);
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
