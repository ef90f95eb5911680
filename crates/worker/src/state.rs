//! The state of a long handler, saved by itself (R6).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_domain::{Json, contract::store::Verdict};
use serde::{Serialize, de::DeserializeOwned};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use crate::{job::Job, run::Run, stop::Stop};

/// A value that the next attempt starts from. Dropping it stops the saving.
#[derive(Debug)]
pub struct State<S> {
    value: S,
    job: Job,
    _saver: AbortOnDropHandle<()>,
}

impl<S: Serialize + DeserializeOwned + Send + 'static> State<S> {
    pub(crate) fn start(job: Job, value: S) -> Self {
        let saver = AbortOnDropHandle::new(tokio::spawn(save_by_itself(job.clone())));
        Self {
            value,
            job,
            _saver: saver,
        }
    }

    /// Changes the value. It is saved at the next interval, or by [`Self::save`].
    pub fn change<R>(&mut self, change: impl FnOnce(&mut S) -> R) -> Result<R, Stop> {
        let changed = change(&mut self.value);
        let json = Json::from_value("checkpoint", &self.value);
        let json = json.map_err(|error| Stop::invalid("invalid_checkpoint", error))?;
        self.job.0.before_its_end(|| self.job.0.unsaved.set(json))?;
        self.job.check()?;
        Ok(changed)
    }

    /// Saves now. When this returns, the next attempt starts from here.
    pub async fn save(&self) -> Result<(), Stop> {
        self.job.save_checkpoint(&self.value).await
    }
}

impl<S> std::ops::Deref for State<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.value
    }
}

async fn save_by_itself(job: Job) {
    loop {
        tokio::time::sleep(job.0.settings().checkpoint_every).await;
        flush(&job.0).await;
    }
}

/// Saves what has changed since the last time, if the store can be had.
pub(crate) async fn flush(run: &Arc<Run>) {
    if let Err(stop) = save_newest(run).await {
        tracing::debug!(?stop, task_id = %run.task.id.0, "a checkpoint could not be saved and waits for the next time");
    }
}

/// The newest state of an attempt until the store has it.
#[derive(Debug, Default)]
pub(crate) struct Unsaved {
    newest: Mutex<Option<Arc<Json>>>,
    /// One write at a time, so that no older state lands after a newer one.
    writing: Arc<tokio::sync::Mutex<()>>,
}

impl Unsaved {
    fn newest(&self) -> MutexGuard<'_, Option<Arc<Json>>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, state: Json) {
        *self.newest() = Some(Arc::new(state));
    }

    /// The store has this one. A newer one that has come meanwhile stays.
    fn saved(&self, state: &Arc<Json>) {
        self.newest().take_if(|newest| Arc::ptr_eq(newest, state));
    }
}

/// Saves the newest state, unless the store has it already.
pub(crate) async fn save_newest(run: &Arc<Run>) -> Result<(), Stop> {
    let writing = Arc::clone(&run.unsaved.writing).lock_owned().await;
    let Some(newest) = run.unsaved.newest().clone() else {
        return Ok(());
    };
    let run = Arc::clone(run);
    let write = async move {
        let _writing = writing;
        write(&run, &newest).await?;
        run.unsaved.saved(&newest);
        Ok(())
    };
    // A write that is under way cannot be called back. Whoever waits for it may be dropped; the next write waits all
    // the same.
    tokio::spawn(write.in_current_span())
        .await
        .unwrap_or_else(|error| Err(Stop::retryable(error)))
}

/// Writes a checkpoint under the attempt's lease.
async fn write(run: &Run, state: &Json) -> Result<(), Stop> {
    let engine = &run.services.engine;
    match engine
        .save_checkpoint(&run.lease, state)
        .await
        .map_err(Stop::retryable)?
    {
        Verdict::Applied(_) | Verdict::Repeated(_) => Ok(()),
        Verdict::Stale(_) | Verdict::Missing => {
            // Whoever goes on with this task does not see what we do any more.
            engine.look_at_leases.notify_one();
            Err(Stop::cancelled())
        }
    }
}
