//! One attempt as the executor and the handler share it.

use std::sync::{
    Arc, Mutex, OnceLock, PoisonError, Weak,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use longhaul_domain::{
    Json, Lease, Status, StoreError, Task, TaskId,
    contract::{ArtifactStore, RateLimiter, StreamLog, store::Access},
    lifecycle::{Command, Refusal},
};
use longhaul_engine::{Engine, desk::StopReason, routing::Routing};
use tokio::task::AbortHandle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    progress::ProgressKeeper, registry::Registry, scribe::Scribe, settings::TypeSettings, stop::Stop, task::TaskInfo,
    worker::Inner,
};

/// What all handlers of a process share.
#[derive(Debug)]
pub struct Services {
    /// The store, and whoever must hear of a change to it.
    pub engine: Arc<Engine>,
    /// Permits of providers.
    pub limiter: Arc<dyn RateLimiter>,
    /// What tasks write while they run.
    pub streams: Arc<dyn StreamLog>,
    /// The files that tasks made.
    pub artifacts: Arc<dyn ArtifactStore>,
    /// Which queue a task goes to when its submitter names none.
    pub routing: Routing,
    /// The types that this process knows.
    pub registry: Registry,
    /// The worker of this process, if it runs one.
    pub(crate) here: OnceLock<Weak<Inner>>,
    pub(crate) progress: ProgressKeeper,
    pub(crate) scribe: Scribe,
    /// The hooks that run now. It is closed from the start, so that whoever waits for it waits until none runs.
    pub(crate) hooks: TaskTracker,
}

impl Services {
    /// Everything that handlers of one process share.
    pub fn new(
        engine: Arc<Engine>,
        limiter: Arc<dyn RateLimiter>,
        streams: Arc<dyn StreamLog>,
        artifacts: Arc<dyn ArtifactStore>,
        routing: Routing,
        registry: Registry,
    ) -> Arc<Self> {
        let (progress, scribe, hooks) = (ProgressKeeper::default(), Scribe::default(), TaskTracker::new());
        hooks.close();
        let here = OnceLock::new();
        Arc::new(Self { engine, limiter, streams, artifacts, routing, registry, here, progress, scribe, hooks })
    }
}

impl Services {
    /// Cancels a task and all below it; one that has ended is left alone. Types that are not cancellable are refused
    /// while they run.
    pub async fn cancel(&self, access: &Access, id: TaskId) -> Result<Status, StoreError> {
        let task = self.engine.store.get_task(access, id).await?;
        let is_cancellable = self.registry.info(&task.task_type).is_none_or(|info| info.is_cancellable);
        if task.status == Status::Running && !is_cancellable {
            return Err(Refusal::WrongState { command: Command::Cancel, status: task.status }.into());
        }
        self.engine.cancel(access, id).await
    }
}

/// One attempt.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) task: Task,
    pub(crate) lease: Lease,
    pub(crate) services: Arc<Services>,
    pub(crate) settings: TypeSettings,
    stop: CancellationToken,
    reason: Mutex<Option<StopReason>>,
    /// The limits that this attempt took permits of; told of a provider's refusal.
    limits: Mutex<Vec<String>>,
    /// The newest state of a long handler that is not saved yet.
    state: Mutex<Option<Json>>,
    /// Children submitted so far, for their names.
    children: AtomicU64,
    /// Whether this attempt has taken over the output stream.
    pub(crate) writes_output: AtomicBool,
    /// Whether it has written log lines.
    pub(crate) writes_logs: AtomicBool,
    /// Drops the handler where it stands, as a crash would.
    pub(crate) abort: OnceLock<AbortHandle>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Run {
    pub(crate) fn new(task: Task, lease: Lease, services: Arc<Services>, settings: TypeSettings) -> Self {
        Self {
            task,
            lease,
            services,
            settings,
            stop: CancellationToken::new(),
            reason: Mutex::default(),
            limits: Mutex::default(),
            state: Mutex::default(),
            children: AtomicU64::new(0),
            writes_output: AtomicBool::new(false),
            writes_logs: AtomicBool::new(false),
            abort: OnceLock::new(),
        }
    }

    /// Asks the handler to stop. The first reason counts.
    pub(crate) fn ask_to_stop(&self, reason: StopReason) {
        locked(&self.reason).get_or_insert(reason);
        self.stop.cancel();
    }

    pub(crate) fn stop_reason(&self) -> Option<StopReason> {
        *locked(&self.reason)
    }

    pub(crate) async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// How a handler that was asked to stop leaves with `?`.
    pub(crate) fn check(&self) -> Result<(), Stop> {
        match self.stop_reason() {
            None => Ok(()),
            Some(StopReason::Drain) => Err(Stop::hand_back()),
            Some(StopReason::Cancelled | StopReason::Lost) => Err(Stop::cancelled()),
        }
    }

    pub(crate) fn note_limit(&self, key: &str) {
        let mut limits = locked(&self.limits);
        if !limits.iter().any(|known| known == key) {
            limits.push(key.to_owned());
        }
    }

    pub(crate) fn take_limits(&self) -> Vec<String> {
        std::mem::take(&mut *locked(&self.limits))
    }

    pub(crate) fn set_state(&self, state: Json) {
        *locked(&self.state) = Some(state);
    }

    pub(crate) fn take_state(&self) -> Option<Json> {
        locked(&self.state).take()
    }

    /// Puts back a state that could not be saved, unless a newer one is there.
    pub(crate) fn return_state(&self, state: Json) {
        locked(&self.state).get_or_insert(state);
    }

    pub(crate) fn next_child(&self) -> u64 {
        self.children.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn info(&self) -> TaskInfo {
        TaskInfo {
            id: self.task.id,
            owner: self.task.owner.clone(),
            task_type: self.task.task_type.clone(),
            queue: self.task.queue.clone(),
            attempt: self.task.attempt,
            parent_id: self.task.parent_id,
            correlation_id: self.task.correlation_id.clone(),
        }
    }
}
