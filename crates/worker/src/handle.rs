//! A submitted task in the submitter's hand.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{
    Attempt, Json, LogPage, Status, StoreError, TaskError, TaskId,
    artifact::ArtifactRecord,
    bounds,
    contract::{
        artifact_store::ArtifactError,
        event_bus::{Heard, Subscription},
        store::Access,
    },
};
use longhaul_engine::{output::Output, queries::why::Why};

use crate::{kind::Kind, progress::Progress, run::Services};

/// How long to wait for news before the store is asked; doubled up to the second.
const ASK_AFTER: Duration = Duration::from_millis(50);
const ASK_AT_LEAST: Duration = Duration::from_secs(1);

/// A submitted task: ask it how far it is, wait for its end, or cancel it. Dropping it changes nothing.
pub struct Handle<K: Kind> {
    services: Arc<Services>,
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
        Self::new(Arc::clone(&self.services), self.id)
    }
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum NoResult {
    /// The task ended otherwise.
    #[error("the task ended {}{}", status.as_str(), error.as_ref().map(|e| format!(": {}", e.message)).unwrap_or_default())]
    Ended {
        /// How it ended.
        status: Status,
        /// Why, if it failed.
        error: Option<TaskError>,
    },
    /// It is complete and has no result, which only a type whose output is `()` or an `Option` can be.
    #[error(
        "the task has no result: a parent that waits for its children has one from its `finish`, with FINISH_STEP, or from `run`"
    )]
    Nothing,
    /// It has a result, but not one of the type's `Output`.
    #[error("the result is not what the type says: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// The store could not be asked.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn may_be_the_end(heard: &Heard) -> bool {
    match heard {
        Heard::Event(event) => event.status.is_ended(),
        Heard::Missed(_) => true,
    }
}

impl<K: Kind> Handle<K> {
    /// A handle to the task of this id. Whether there is such a task shows when it is asked.
    pub fn new(services: Arc<Services>, id: TaskId) -> Self {
        Self {
            services,
            id,
            of: PhantomData,
        }
    }

    /// The task's id, to find it again later: `longhaul.handle::<T>(id)`.
    pub fn id(&self) -> TaskId {
        self.id
    }

    /// The whole record.
    pub async fn task(&self) -> Result<longhaul_domain::Task, StoreError> {
        self.services
            .engine
            .store
            .get_task(&Access::All, self.id)
            .await
    }

    /// Where the task stands now.
    pub async fn status(&self) -> Result<Status, StoreError> {
        Ok(self.task().await?.status)
    }

    /// The newest progress, live if the task runs in this process or the processes share a progress cache.
    pub async fn progress(&self) -> Result<Option<Progress>, StoreError> {
        if let Some(hot) = self.services.engine.hot_progress(self.id) {
            return Ok(Some(Progress::read(hot)));
        }
        let task = self.task().await?;
        let live = self
            .services
            .engine
            .live_progress(std::slice::from_ref(&task))
            .await
            .pop()
            .flatten();
        let newest = live.or_else(|| serde_json::from_str(task.progress?.as_str()).ok());
        Ok(newest.map(Progress::read))
    }

    /// What the task writes with `emit`, from the start, and then as it comes until the task has ended. Of a task that
    /// runs in another process there is something to read only where the processes share their streams.
    pub async fn output(&self) -> Result<Output, StoreError> {
        let (engine, streams) = (
            Arc::clone(&self.services.engine),
            Arc::clone(&self.services.streams),
        );
        Output::open(engine, streams, Access::All, self.id).await
    }

    /// The files that the task made, of attempts whose result was accepted, the oldest first.
    pub async fn artifacts(&self) -> Result<Vec<ArtifactRecord>, StoreError> {
        self.services
            .engine
            .store
            .list_artifacts(&Access::All, self.id)
            .await
    }

    /// The bytes of one of them, all in memory.
    pub async fn read_artifact(&self, artifact: &ArtifactRecord) -> Result<Vec<u8>, ArtifactError> {
        let (_, bytes) = self.services.files.store.get(&artifact.key).await?;
        Ok(bytes)
    }

    /// The attempts so far with their outcomes, the first one first; at most 1,000.
    pub async fn attempts(&self) -> Result<Vec<Attempt>, StoreError> {
        self.services
            .engine
            .store
            .list_attempts(&Access::All, self.id, 0, bounds::PAGE_SIZE)
            .await
    }

    /// A page of the log lines that are kept with the task, oldest first: those after number `after`.
    pub async fn logs(&self, after: Option<u64>) -> Result<LogPage, StoreError> {
        self.services
            .engine
            .store
            .list_logs(&Access::All, self.id, after, bounds::PAGE_SIZE)
            .await
    }

    /// Why the task is not running yet: [`Why`] says what it waits for, a queue that nobody serves among it.
    pub async fn why(&self) -> Result<Why, StoreError> {
        let knows = |task_type: &str| self.services.registry.info(task_type).is_some();
        self.services.engine.why(&Access::All, self.id, knows).await
    }

    /// Cancels the task and all below it; one that has ended is left alone. Types that are not cancellable are refused
    /// while they run.
    pub async fn cancel(&self) -> Result<Status, StoreError> {
        self.services.cancel(&Access::All, self.id).await
    }

    /// Waits for the end, and answers with the record.
    pub async fn ended(&self) -> Result<longhaul_domain::Task, StoreError> {
        // Listening starts before the look, so that no end can fall between them.
        let subscription = Subscription {
            task_id: Some(self.id),
            owner: None,
        };
        let mut news = self.services.engine.bus.subscribe(subscription);
        let mut ask_after = ASK_AFTER;
        loop {
            let task = self.task().await?;
            if task.status.is_ended() {
                return Ok(task);
            }
            // News may be lost, or the task may run in another process.
            let end = async {
                while news
                    .next()
                    .await
                    .is_some_and(|heard| !may_be_the_end(&heard))
                {}
            };
            if tokio::time::timeout(ask_after, end).await.is_err() {
                ask_after = (ask_after * 2).min(ASK_AT_LEAST);
            }
        }
    }

    /// Waits for the end, and answers with the result, or with how the task ended without one.
    pub async fn result(&self) -> Result<K::Output, NoResult> {
        Self::result_of(&self.ended().await?)
    }

    /// The result that an ended task's record has, or how it ended without one. A task that is complete without a result has
    /// that of a type whose output is `()`.
    pub fn result_of(task: &longhaul_domain::Task) -> Result<K::Output, NoResult> {
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
