//! One attempt as the executor and the handler share it.

use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak, atomic::AtomicBool};
use std::time::{Duration, Instant};

use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream};
use longhaul_domain::{
    Lease, NewTask, Status, StoreError, Task, TaskId,
    contract::{
        ArtifactStore, RateLimiter, StreamLog,
        store::{Access, Moved, Outcome as Ending, Submitted},
    },
    event::EventKind,
    lifecycle::{Command, Refusal},
};
use longhaul_engine::{
    Engine, Files, TaskInfo,
    desk::StopReason,
    metrics::Listener,
    routing::Routing,
    trace::{self, TraceContext},
};
use tokio::task::{AbortHandle, JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    progress::ProgressKeeper,
    registry::{Handler, Hook, Registry},
    scribe::Scribe,
    settings::TypeSettings,
    state::Unsaved,
    stop::Stop,
    worker::Inner,
};

/// How long a shutdown waits for hooks that still run.
const LAST_HOOKS: Duration = Duration::from_secs(5);
/// Hooks of one submit or delivery that run at once.
const HOOKS_AT_ONCE: usize = 100;

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
    /// How those files are kept and handed out.
    pub files: Arc<Files>,
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
        files: Arc<Files>,
        routing: Routing,
        registry: Registry,
    ) -> Arc<Self> {
        let (progress, scribe, hooks) = (
            ProgressKeeper::default(),
            Scribe::default(),
            TaskTracker::new(),
        );
        hooks.close();
        let (here, artifacts) = (OnceLock::new(), Arc::clone(&files.store));
        Arc::new(Self {
            engine,
            limiter,
            streams,
            artifacts,
            files,
            routing,
            registry,
            here,
            progress,
            scribe,
            hooks,
        })
    }
}

impl Services {
    /// Makes all of the tasks, in order, or none, and calls the hooks of those that are new.
    pub async fn submit_many(&self, tasks: Vec<NewTask>) -> Result<Vec<Submitted>, StoreError> {
        let places = tasks.iter().enumerate();
        let hooks: Vec<_> = places
            .filter_map(|(place, task)| Some((place, self.registry.queued_hook(task)?)))
            .collect();
        for alike in
            tasks.chunk_by(|one, next| one.task_type == next.task_type && one.queue == next.queue)
        {
            alike
                .first()
                .into_iter()
                .for_each(|task| self.warn_if_nobody_runs(task));
        }
        let submitted = self.engine.submit_many(tasks).await?;
        let called = hooks
            .into_iter()
            .map(|(place, hook)| (hook, submitted[place]));
        let new = called.filter(|(_, made)| !made.repeated);
        let calls: Vec<_> = new.map(|(hook, made)| hook(made.task_id)).collect();
        calls.iter().for_each(|_| {
            self.engine
                .metrics
                .processed(Listener::Hooks, EventKind::Submitted)
        });
        self.call_hooks(calls);
        Ok(submitted)
    }

    /// The worker of this process tells of a task that is about to be submitted and that nobody will run.
    pub(crate) fn warn_if_nobody_runs(&self, task: &NewTask) {
        if let Some(inner) = self.here.get().and_then(Weak::upgrade) {
            inner.warn_if_nobody_runs(task);
        }
    }

    /// Waits a while for the hooks that still run: the process is about to stop.
    pub async fn end_hooks(&self) {
        if tokio::time::timeout(LAST_HOOKS, self.hooks.wait())
            .await
            .is_err()
        {
            tracing::warn!("a shutdown goes on while hooks still run");
        }
    }

    /// Calls hooks of many tasks, beside everything else.
    pub(crate) fn call_hooks(&self, calls: Vec<BoxFuture<'static, ()>>) {
        if calls.is_empty() {
            return;
        }
        self.hooks.spawn(call_all(calls));
    }

    /// Cancels a task and all below it; one that has ended is left alone. Types that are not cancellable are refused
    /// while they run.
    ///
    /// The hooks of those that did not run are called here; one that ran is told by the end of its attempt.
    pub async fn cancel(&self, access: &Access, id: TaskId) -> Result<Status, StoreError> {
        let task = self.engine.store.get_task(access, id).await?;
        let is_cancellable = self
            .registry
            .info(&task.task_type)
            .is_none_or(|info| info.is_cancellable);
        if task.status == Status::Running && !is_cancellable {
            return Err(Refusal::WrongState {
                command: Command::Cancel,
                status: task.status,
            }
            .into());
        }
        let done = self.engine.cancel(access, id).await?;
        let mut calls = Vec::new();
        for Moved { was, task } in &done.moved {
            if task.status == Status::Cancelled
                && *was != Status::Running
                && let Some(handler) = self.registry.handler(&task.task_type)
            {
                self.engine
                    .metrics
                    .processed(Listener::Hooks, EventKind::Cancelled);
                calls.push(handler.hook(Hook::Cancelled, Arc::new(TaskInfo::of(task))));
            }
        }
        self.call_hooks(calls);
        Ok(done.status)
    }
}

/// Calls hooks, at most so many at once that have to wait. Most have nothing to do and are over when they are first looked at.
async fn call_all(calls: Vec<BoxFuture<'static, ()>>) {
    // One that panics takes no other along.
    let calls = calls
        .into_iter()
        .map(|call| AssertUnwindSafe(call).catch_unwind());
    let waiting = calls.filter_map(|mut call| (&mut call).now_or_never().is_none().then_some(call));
    stream::iter(waiting)
        .for_each_concurrent(HOOKS_AT_ONCE, |call| call.map(drop))
        .await;
}

/// The numbers of equal children of an attempt.
#[derive(Debug, Default)]
struct EqualChildren {
    count: u64,
    /// Numbers of those that may not have been made. They are the next ones.
    returned: BTreeSet<u64>,
}

/// One attempt.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) task: Task,
    pub(crate) lease: Lease,
    /// What hooks are told of the task.
    pub(crate) info: Arc<TaskInfo>,
    pub(crate) services: Arc<Services>,
    pub(crate) handler: Arc<dyn Handler>,
    /// What its log lines and its trace are told of.
    pub(crate) span: tracing::Span,
    pub(crate) started: Instant,
    stop: CancellationToken,
    reason: Mutex<Option<StopReason>>,
    /// Whether the work has ended, however it did. What is left of a handler writes nothing more.
    is_over: Mutex<bool>,
    /// The limits that this attempt took permits of, the one that was used last at the end.
    limits: Mutex<Vec<String>>,
    /// The newest state of a long handler, if it is not saved yet.
    pub(crate) unsaved: Unsaved,
    /// How many equal children were submitted so far, by their digest.
    children: Mutex<HashMap<[u8; 32], EqualChildren>>,
    /// Whether this attempt has taken over the output stream.
    pub(crate) writes_output: AtomicBool,
    /// Whether it has written log lines.
    pub(crate) writes_logs: AtomicBool,
    /// Where the first file that it kept can be downloaded.
    pub(crate) result_url: OnceLock<String>,
    /// Drops the handler where it stands, as a crash would.
    pub(crate) abort: OnceLock<AbortHandle>,
    /// A thread that blocks, and that nobody waits for any more.
    left_behind: Mutex<Option<HandlerThread>>,
}

/// The thread of a handler that may block.
pub(crate) type HandlerThread = JoinHandle<Option<Ending>>;

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The ids that every line of an attempt carries. It is shown at every level, so that a warning has them, too.
fn span_of(task: &Task) -> tracing::Span {
    let context = TraceContext::of(task);
    let span = tracing::error_span!(
        "task",
        otel.name = %format_args!("run {}", task.task_type),
        otel.kind = "consumer",
        traceId = context.map(|context| format!("{:032x}", context.trace_id())),
        correlationId = task.correlation_id,
        userId = task.owner,
        taskId = %task.id.0,
        taskType = task.task_type,
        attempt = task.attempt,
    );
    trace::attach(&span, context);
    span
}

impl Run {
    /// Where children of this attempt go on in its trace.
    pub(crate) fn trace_context(&self) -> Option<TraceContext> {
        trace::context_of(&self.span).or_else(|| TraceContext::of(&self.task))
    }

    pub(crate) fn new(
        task: Task,
        lease: Lease,
        info: Arc<TaskInfo>,
        services: Arc<Services>,
        handler: Arc<dyn Handler>,
    ) -> Self {
        Self {
            span: span_of(&task),
            started: Instant::now(),
            task,
            lease,
            info,
            services,
            handler,
            stop: CancellationToken::new(),
            reason: Mutex::default(),
            is_over: Mutex::default(),
            limits: Mutex::default(),
            unsaved: Unsaved::default(),
            children: Mutex::default(),
            writes_output: AtomicBool::new(false),
            writes_logs: AtomicBool::new(false),
            result_url: OnceLock::new(),
            abort: OnceLock::new(),
            left_behind: Mutex::default(),
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

    /// The work has ended: nobody may write for this attempt from now on, and whoever still listens should stop.
    pub(crate) fn close(&self) {
        *locked(&self.is_over) = true;
        self.stop.cancel();
    }

    /// Does something that must not come after the end of the work.
    pub(crate) fn before_its_end(&self, act: impl FnOnce()) -> Result<(), Stop> {
        let is_over = locked(&self.is_over);
        if *is_over {
            return Err(Stop::cancelled());
        }
        act();
        Ok(())
    }

    pub(crate) async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// How a handler that was asked to stop leaves with `?`.
    pub(crate) fn check(&self) -> Result<(), Stop> {
        match self.stop_reason() {
            None => self.before_its_end(|| {}),
            Some(StopReason::Drain) => Err(Stop::hand_back()),
            Some(StopReason::Cancelled | StopReason::Lost) => Err(Stop::cancelled()),
        }
    }

    /// The attempt is over, and its thread goes on: no thread can be stopped from outside.
    pub(crate) fn leave_behind(&self, thread: HandlerThread) {
        *locked(&self.left_behind) = Some(thread);
    }

    pub(crate) fn take_left_behind(&self) -> Option<HandlerThread> {
        locked(&self.left_behind).take()
    }

    pub(crate) fn note_limit(&self, key: &str) {
        let mut limits = locked(&self.limits);
        limits.retain(|known| known != key);
        limits.push(key.to_owned());
    }

    pub(crate) fn take_limits(&self) -> Vec<String> {
        std::mem::take(&mut *locked(&self.limits))
    }

    /// The number of the next child of this digest, from 0.
    pub(crate) fn number_child(&self, digest: [u8; 32]) -> u64 {
        let mut children = locked(&self.children);
        let equal = children.entry(digest).or_default();
        equal.returned.pop_first().unwrap_or_else(|| {
            equal.count += 1;
            equal.count - 1
        })
    }

    /// The child of this number may not have been made: whoever submits it again submits the same one.
    pub(crate) fn give_back_child(&self, digest: [u8; 32], number: u64) {
        locked(&self.children)
            .entry(digest)
            .or_default()
            .returned
            .insert(number);
    }

    /// What the type asks for.
    pub(crate) fn settings(&self) -> &TypeSettings {
        &self.handler.info().settings
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn hooks_that_wait_or_panic_keep_no_other_from_its_end() {
        let (begun, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let call = |number: usize| {
            let (begun, ended) = (Arc::clone(&begun), Arc::clone(&ended));
            async move {
                begun.fetch_add(1, Ordering::Relaxed);
                match number % 4 {
                    0 => {}
                    1 => panic!("at once"),
                    _ => tokio::task::yield_now().await,
                }
                assert_ne!(number % 4, 3, "after a wait");
                ended.fetch_add(1, Ordering::Relaxed);
            }
            .boxed()
        };
        let count = HOOKS_AT_ONCE * 12;
        call_all((0..count).map(call).collect()).await;
        assert_eq!(
            (begun.load(Ordering::Relaxed), ended.load(Ordering::Relaxed)),
            (count, count / 2)
        );
    }

    #[tokio::test]
    async fn no_more_hooks_wait_at_once_than_may() {
        let begun = Arc::new(AtomicUsize::new(0));
        let call = |_| {
            let begun = Arc::clone(&begun);
            async move {
                begun.fetch_add(1, Ordering::Relaxed);
                std::future::pending().await
            }
            .boxed()
        };
        assert!(
            call_all((0..HOOKS_AT_ONCE * 3).map(call).collect())
                .now_or_never()
                .is_none()
        );
        assert_eq!(begun.load(Ordering::Relaxed), HOOKS_AT_ONCE);
    }
}
