//! The newest checkpoint of an attempt, until the store has it.

use std::sync::Arc;

use longhaul_domain::{Json, Lease, contract::store::Verdict};
use longhaul_engine::Engine;
use longhaul_sdk::Stop;
use parking_lot::Mutex;
use tracing::Instrument as _;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Checkpoint {
    newest: Mutex<Option<Arc<Json>>>,
    /// One write at a time, so that no older checkpoint lands after a newer one.
    writing: Arc<tokio::sync::Mutex<()>>,
}

impl Checkpoint {
    pub(crate) fn set(&self, checkpoint: Json) {
        // An older checkpoint that is being written has its own `Arc` and is not affected.
        *self.newest.lock() = Some(Arc::new(checkpoint));
    }

    /// Writes the newest checkpoint, unless the store has it already.
    pub(crate) async fn save(
        self: &Arc<Self>,
        engine: &Arc<Engine>,
        lease: Lease,
    ) -> Result<(), Stop> {
        // Before the newest checkpoint is read: the write before this one may take long.
        let writing = Arc::clone(&self.writing).lock_owned().await;
        let Some(newest) = self.newest.lock().clone() else {
            return Ok(());
        };

        let checkpoint = Arc::clone(self);
        let engine = Arc::clone(engine);
        let write = async move {
            // The next write waits until this one is done.
            let _writing = writing;
            write(&engine, lease, &newest).await?;
            checkpoint.forget(&newest);
            Ok(())
        };

        // A write that was sent cannot be called back. It runs in a task of its own, because the
        // caller may be dropped while it waits.
        let written = tokio::spawn(write.in_current_span()).await;
        written.unwrap_or_else(|error| Err(Stop::retryable(error)))
    }

    /// Forgets a checkpoint that the store has, unless there is a newer one.
    fn forget(&self, saved: &Arc<Json>) {
        // Compared and taken under one lock, because the handler may set another one.
        self.newest
            .lock()
            .take_if(|newest| Arc::ptr_eq(newest, saved));
    }
}

async fn write(engine: &Engine, lease: Lease, checkpoint: &Json) -> Result<(), Stop> {
    let verdict = engine.save_checkpoint(&lease, checkpoint).await;
    match verdict.map_err(Stop::retryable)? {
        Verdict::Applied(_) | Verdict::Repeated(_) => Ok(()),
        Verdict::Stale(_) | Verdict::Missing => {
            // Another attempt has taken over, or the task has ended: the heartbeat finds out which.
            engine.wakeups().notify_leases();
            Err(Stop::cancelled())
        }
    }
}
