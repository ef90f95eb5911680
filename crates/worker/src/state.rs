//! The state of a long handler, saved by itself (R6).

use longhaul_domain::Json;
use serde::{Serialize, de::DeserializeOwned};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    job::{Job, save},
    stop::Stop,
};

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
        Self { value, job, _saver: saver }
    }

    /// Changes the value. It is saved at the next interval, or by [`Self::save`].
    pub fn change<R>(&mut self, change: impl FnOnce(&mut S) -> R) -> Result<R, Stop> {
        let changed = change(&mut self.value);
        let json = Json::from_value("checkpoint", &self.value);
        self.job.0.set_state(json.map_err(|error| Stop::invalid("invalid_checkpoint", error))?);
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
        tokio::time::sleep(job.0.settings.checkpoint_every).await;
        flush(&job).await;
    }
}

/// Saves what has changed since the last time.
pub(crate) async fn flush(job: &Job) {
    let Some(state) = job.0.take_state() else { return };
    if let Err(stop) = save(&job.0, &state).await {
        tracing::debug!(?stop, task_id = %job.id().0, "a checkpoint could not be saved and waits for the next time");
        job.0.return_state(state);
    }
}
