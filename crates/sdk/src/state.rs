//! The state of a long handler, saved at intervals.

use serde::{Serialize, de::DeserializeOwned};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    job::{Job, checkpoint_json},
    stop::Stop,
};

/// A value that the next attempt starts from. It is saved at the type's interval until it is
/// dropped.
#[derive(Debug)]
pub struct State<S> {
    value: S,
    job: Job,
    _saver: AbortOnDropHandle<()>,
}

impl<S: Serialize + DeserializeOwned + Send + 'static> State<S> {
    pub(crate) fn start(job: Job, value: S) -> Self {
        // The saver runs beside the handler, so that a handler that waits for long is saved, too.
        let saver = tokio::spawn(save_at_intervals(job.clone()));

        Self {
            value,
            job,
            _saver: AbortOnDropHandle::new(saver),
        }
    }

    /// Changes the value. It is saved at the next interval, or by [`Self::save`].
    pub fn change<R>(&mut self, change: impl FnOnce(&mut S) -> R) -> Result<R, Stop> {
        let changed = change(&mut self.value);

        let attempt = self.job.context();
        attempt.set_checkpoint(checkpoint_json(&self.value)?)?;
        attempt.check()?;
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

async fn save_at_intervals(job: Job) {
    let attempt = job.context();
    let interval = attempt.type_info().settings.checkpoint_every;

    loop {
        tokio::time::sleep(interval).await;
        if let Err(stop) = attempt.save_checkpoint().await {
            tracing::debug!(
                ?stop,
                task_id = %job.id().0,
                "checkpoint not saved; trying again at the next interval"
            );
        }
    }
}
