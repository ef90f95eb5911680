//! A submitted task, as its submitter follows it.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{
    Attempt, Json, LogPage, Status, StoreError, TaskError, TaskId, TaskRecord,
    artifact::ArtifactRecord,
    bounds,
    contract::{
        artifact_store::ArtifactError,
        event_bus::{Received, Subscription},
        store::Access,
    },
};
use longhaul_engine::{Submissions as _, output::Output, queries::why::Why};

use crate::{client::Client, kind::Kind, progress::Progress};

/// How long to wait for an event before the store is asked. Doubled each time, up to
/// [`LONGEST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// A submitted task: follow its progress, wait for its end, or cancel it. Dropping the handle does
/// not affect the task.
pub struct Handle<K: Kind> {
    client: Arc<Client>,
    id: TaskId,
    of: PhantomData<fn() -> K>,
}

impl<K: Kind> std::fmt::Debug for Handle<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle")
            .field("output", &std::any::type_name::<K::Output>())
            .field("id", &self.id)
            .finish()
    }
}

impl<K: Kind> Clone for Handle<K> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.client), self.id)
    }
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum NoResult {
    /// The task did not complete.
    #[error("the task ended {}{}", status.as_str(), reason(error.as_ref()))]
    Ended {
        /// How it ended.
        status: Status,
        /// Why, if it failed.
        error: Option<TaskError>,
    },
    /// The task completed without a result. Only the output types `()` and `Option` allow that.
    #[error(
        "the task has no result: a parent that waits for its children gets one from `finish`, \
         with FINISH_STEP, or from `run`"
    )]
    Nothing,
    /// The result is not one of the type's `Output`.
    #[error("the result does not fit the type's output: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The message of an error, as the end of a sentence.
fn reason(error: Option<&TaskError>) -> String {
    match error {
        Some(error) => format!(": {}", error.message),
        None => String::new(),
    }
}

fn may_be_the_end(received: &Received) -> bool {
    match received {
        Received::Event(event) => event.status.is_ended(),
        Received::Missed(_) => true,
    }
}

impl<K: Kind> Handle<K> {
    /// A handle to the task of this id. A task that does not exist is an error of the first call.
    pub fn new(client: Arc<Client>, id: TaskId) -> Self {
        Self {
            client,
            id,
            of: PhantomData,
        }
    }

    /// The task's id, to find it again later: `longhaul.handle::<T>(id)`.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// The task's record.
    pub async fn task(&self) -> Result<TaskRecord, StoreError> {
        self.client
            .engine
            .reads()
            .get_task(&Access::All, self.id)
            .await
    }

    /// The current status.
    pub async fn status(&self) -> Result<Status, StoreError> {
        Ok(self.task().await?.status)
    }

    /// The newest progress. It is live if the task runs in this process, or if the processes share
    /// a progress cache.
    pub async fn progress(&self) -> Result<Option<Progress>, StoreError> {
        if let Some(progress) = self.client.engine.progress_here(self.id) {
            return Ok(Some(Progress::read(progress)));
        }

        let task = self.task().await?;
        let live = self
            .client
            .engine
            .live_progress(std::slice::from_ref(&task))
            .await
            .pop()
            .flatten();

        let newest = live.or_else(|| serde_json::from_str(task.progress?.as_str()).ok());
        Ok(newest.map(Progress::read))
    }

    /// What the task writes with `emit`, from the start until the task has ended. The output of a
    /// task in another process is available only if the processes share their streams.
    pub async fn output(&self) -> Result<Output, StoreError> {
        let engine = Arc::clone(&self.client.engine);
        let streams = Arc::clone(&self.client.streams);
        Output::open(engine, streams, Access::All, self.id).await
    }

    /// The files that the task made, oldest first. Only those of attempts whose result was
    /// accepted.
    pub async fn artifacts(&self) -> Result<Vec<ArtifactRecord>, StoreError> {
        self.client
            .engine
            .reads()
            .list_artifacts(&Access::All, self.id)
            .await
    }

    /// The bytes of a file, all in memory.
    pub async fn read_artifact(&self, artifact: &ArtifactRecord) -> Result<Vec<u8>, ArtifactError> {
        let (_, bytes) = self.client.files.store.get(&artifact.key).await?;
        Ok(bytes)
    }

    /// The attempts that have ended, oldest first. At most 1,000.
    pub async fn attempts(&self) -> Result<Vec<Attempt>, StoreError> {
        self.client
            .engine
            .reads()
            .list_attempts(&Access::All, self.id, 0, bounds::PAGE_SIZE)
            .await
    }

    /// A page of the task's log lines, oldest first, after number `after`.
    pub async fn logs(&self, after: Option<u64>) -> Result<LogPage, StoreError> {
        self.client
            .engine
            .reads()
            .list_logs(&Access::All, self.id, after, bounds::PAGE_SIZE)
            .await
    }

    /// Why the task is not running yet. [`Why`] lists what it waits for, such as a node that serves
    /// its queue.
    pub async fn why(&self) -> Result<Why, StoreError> {
        let is_known = |task_type: &str| self.client.registry.info(task_type).is_some();
        self.client
            .engine
            .why(&Access::All, self.id, is_known)
            .await
    }

    /// Cancels the task and all below it. A task that has ended stays as it is. A type that is not
    /// cancellable is refused while it runs.
    pub async fn cancel(&self) -> Result<Status, StoreError> {
        self.client.cancel(&Access::All, self.id).await
    }

    /// Waits for the end and returns the record.
    pub async fn ended(&self) -> Result<TaskRecord, StoreError> {
        // The subscription starts before the first read, so that no end falls between them.
        let subscription = Subscription {
            task_id: Some(self.id),
            owner: None,
        };
        let mut events = self.client.engine.subscribe(subscription);
        let mut wait = FIRST_WAIT;

        loop {
            let task = self.task().await?;
            if task.status.is_ended() {
                return Ok(task);
            }

            // Events may be lost, or the task may run in another process: read again after a while.
            let end = async {
                while let Some(received) = events.next().await {
                    if may_be_the_end(&received) {
                        return;
                    }
                }
            };
            if tokio::time::timeout(wait, end).await.is_err() {
                wait = (wait * 2).min(LONGEST_WAIT);
            }
        }
    }

    /// Waits for the end and returns the result, or how the task ended without one.
    pub async fn result(&self) -> Result<K::Output, NoResult> {
        Self::result_of(&self.ended().await?)
    }

    /// The result of a task that has ended, or how it ended without one. A completed task without a
    /// result has the result `()`.
    pub fn result_of(task: &TaskRecord) -> Result<K::Output, NoResult> {
        match (task.status, &task.result) {
            (Status::Completed | Status::CompletedWithErrors, Some(result)) => {
                Ok(Json::read(result)?)
            }
            (Status::Completed, None) => {
                serde_json::from_str("null").map_err(|_| NoResult::Nothing)
            }
            (status, _) => Err(NoResult::Ended {
                status,
                error: task.error.clone(),
            }),
        }
    }
}
