//! Submitting, typed: the same words for a user's tasks and for a handler's children.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use longhaul_domain::{
    Idempotency, Invalid, Json, NewTask, RetryPolicy, RunAt, StoreError, TaskId, Timestamp, bounds,
    contract::store::Submitted,
};
use longhaul_engine::trace;
use sha2::{Digest, Sha256};

use crate::{
    handle::Handle,
    run::{Run, Services},
    stop::Stop,
    task::Task,
    worker,
};

/// How long an idempotency key holds when nobody says otherwise.
const KEY_HOLDS: Duration = Duration::from_secs(24 * 3_600);
/// Children keep their names as long as anybody may run their parent again.
const CHILD_KEY_HOLDS_MS: u64 = 366 * 24 * 3_600 * 1_000;
/// A child's key in bytes: with the parent's id and step before it, it fits where keys are kept.
const CHILD_KEY_BYTES: usize = 140;
/// Children in one transaction.
const CHILDREN_AT_ONCE: usize = 1_000;

/// Whose tasks they are when nobody says it.
const DEFAULT_OWNER: &str = "default";

/// Names that the tasks of a batch have in common: each takes memory once.
#[derive(Debug)]
pub struct Names {
    owner: Arc<str>,
    task_type: Arc<str>,
    /// Of the task before.
    queue: Arc<str>,
}

impl Names {
    /// Those of a batch of tasks of this type.
    pub fn of<T: Task>() -> Self {
        Self { owner: DEFAULT_OWNER.into(), task_type: T::TYPE.into(), queue: Arc::default() }
    }

    fn queue(&mut self, name: &str) -> Arc<str> {
        if *self.queue != *name {
            self.queue = name.into();
        }
        Arc::clone(&self.queue)
    }
}

/// A task that is about to be submitted; `.await` submits it.
#[must_use = "a submission does nothing until it is awaited"]
pub struct Submission<T: Task> {
    services: Arc<Services>,
    /// The first thing that was wrong is told when it is awaited.
    task: Result<NewTask, Invalid>,
    /// The names that it has of its own. The others it gets when it becomes a task, and shares with its batch.
    owner: Option<Arc<str>>,
    queue: Option<String>,
    expected: Option<Duration>,
    idempotency: Option<String>,
    /// The attempt that submits it as its child.
    parent: Option<Arc<Run>>,
    of: PhantomData<fn() -> T>,
}

impl<T: Task> std::fmt::Debug for Submission<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Submission").field("type", &T::TYPE).field("task", &self.task).finish()
    }
}

impl<T: Task> Submission<T> {
    /// A task of the default owner with the type's own settings.
    pub fn new(services: &Arc<Services>, params: &T::Params) -> Self {
        let info = services.registry.info(T::TYPE);
        let settings = info.map(|info| info.settings.clone()).unwrap_or_default();
        let task = Json::from_value("parameters", params).map(|parameters| NewTask {
            max_attempts: settings.max_attempts,
            timeout_ms: settings.timeout.map(millis),
            finish_step: T::FINISH_STEP,
            retry: settings.retry,
            ..NewTask::named(Arc::default(), Arc::default(), Arc::default(), parameters)
        });
        Self {
            services: Arc::clone(services),
            task,
            owner: None,
            queue: settings.queue,
            expected: settings.expected_duration,
            idempotency: None,
            parent: None,
            of: PhantomData,
        }
    }

    pub(crate) fn child(run: &Arc<Run>, params: &T::Params) -> Self {
        let mut child = Self::new(&run.services, params);
        if let Ok(task) = &mut child.task {
            task.tier.clone_from(&run.task.tier);
            task.priority = run.task.priority;
            task.correlation_id.clone_from(&run.task.correlation_id);
            task.trace_context = run.trace_context().map(|context| context.to_string());
            task.parent = Some(run.lease);
        }
        child.owner = Some(run.task.owner.as_str().into());
        child.parent = Some(Arc::clone(run));
        child
    }

    fn with(mut self, change: impl FnOnce(&mut NewTask)) -> Self {
        if let Ok(task) = &mut self.task {
            change(task);
        }
        self
    }

    /// Whose task it is.
    pub fn owner(mut self, owner: &str) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// The owner's class; with the expected duration it decides the queue.
    pub fn tier(self, tier: &str) -> Self {
        self.with(|task| task.tier = Some(tier.to_owned()))
    }

    /// From 1, the default, to 9, which goes first.
    pub fn priority(self, priority: u8) -> Self {
        self.with(|task| task.priority = priority)
    }

    /// The queue, whatever tier and expected duration say. A worker must serve it.
    pub fn queue(mut self, queue: &str) -> Self {
        self.queue = Some(queue.to_owned());
        self
    }

    /// About how long it takes; with the tier it decides the queue.
    pub const fn expected_duration(mut self, duration: Duration) -> Self {
        self.expected = Some(duration);
        self
    }

    /// Not before so long from now.
    pub fn delay(self, delay: Duration) -> Self {
        self.with(|task| task.run_at = RunAt::AfterMs(millis(delay)))
    }

    /// Not before this moment.
    pub fn run_at(self, moment: Timestamp) -> Self {
        self.with(|task| task.run_at = RunAt::At(moment))
    }

    /// Attempts after which the task is a dead letter, if they all fail.
    pub fn max_attempts(self, attempts: u32) -> Self {
        self.with(|task| task.max_attempts = attempts)
    }

    /// How long to wait before each further attempt.
    pub fn retry(self, policy: RetryPolicy) -> Self {
        self.with(|task| task.retry = policy)
    }

    /// How long one attempt may take.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with(|task| task.timeout_ms = Some(millis(timeout)))
    }

    /// When the task must have ended, attempts and waits together.
    pub fn deadline(self, moment: Timestamp) -> Self {
        self.with(|task| task.deadline_at = Some(moment))
    }

    /// A business id that people search by.
    pub fn key(self, key: &str) -> Self {
        self.with(|task| task.task_key = Some(key.to_owned()))
    }

    /// Ties the task to a request of the submitter's; its children inherit it.
    pub fn correlation_id(self, id: &str) -> Self {
        self.with(|task| task.correlation_id = Some(id.to_owned()))
    }

    /// The same key from the same owner within a day gives the same task. A child's key, of at most 140 bytes, counts
    /// within one step of its parent and as long as the parent can run: see [`Job::submit`](crate::Job::submit).
    pub fn idempotency_key(mut self, key: &str) -> Self {
        self.idempotency = Some(key.to_owned());
        self
    }

    /// The task as the store takes it, for a submit in a transaction of the caller's own.
    pub fn into_new_task(self) -> Result<NewTask, Invalid> {
        self.into_task_of_batch(&mut Names::of::<T>())
    }

    /// The same for one of many.
    pub fn into_task_of_batch(self, names: &mut Names) -> Result<NewTask, Invalid> {
        let mut task = self.task?;
        task.owner = self.owner.unwrap_or_else(|| Arc::clone(&names.owner));
        task.task_type = Arc::clone(&names.task_type);
        if task.trace_context.is_none() {
            let here = trace::context_of(&tracing::Span::current());
            task.trace_context = here.map(|context| context.to_string());
        }
        task.queue = match &self.queue {
            Some(queue) => names.queue(queue),
            None => names.queue(self.services.routing.queue(task.tier.as_deref(), self.expected)),
        };
        task.idempotency = match (self.parent, self.idempotency) {
            (Some(run), given) => {
                let digest = digest(&task);
                let key = child_key(&run, given.as_deref(), digest)?;
                Some(Idempotency { key, digest, ttl_ms: CHILD_KEY_HOLDS_MS })
            }
            (None, Some(key)) => Some(Idempotency { key, digest: digest(&task), ttl_ms: millis(KEY_HOLDS) }),
            (None, None) => None,
        };
        task.check()?;
        Ok(task)
    }

    /// Gives it the tier that somebody knows its owner to have, if nothing is said. A child has its parent's.
    pub async fn take_tier_of_owner(&mut self) {
        if let Ok(task) = &mut self.task
            && task.tier.is_none()
            && self.parent.is_none()
        {
            task.tier = self.services.engine.tier_of(self.owner.as_deref().unwrap_or(DEFAULT_OWNER)).await;
        }
    }

    async fn submit(mut self) -> Result<Handle<T>, StoreError> {
        let services = Arc::clone(&self.services);
        self.take_tier_of_owner().await;
        let submitted = submit_one(&services, self.into_new_task()?).await?;
        Ok(Handle::new(services, submitted.task_id))
    }
}

impl<T: Task> IntoFuture for Submission<T> {
    type Output = Result<Handle<T>, StoreError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.submit())
    }
}

/// Submits a task, starts it at once if this process can, and calls its type's hook.
pub(crate) async fn submit_one(services: &Arc<Services>, task: NewTask) -> Result<Submitted, StoreError> {
    let hook = services.registry.queued_hook(&task);
    let submitted = worker::submit(services, task).await?;
    if let Some(hook) = hook.filter(|_| !submitted.repeated) {
        services.hooks.spawn(hook(submitted.task_id));
    }
    Ok(submitted)
}

/// Submits many children, a thousand in a transaction.
pub(crate) async fn submit_children<C: Task>(
    run: &Arc<Run>,
    params: impl IntoIterator<Item = C::Params>,
) -> Result<Vec<TaskId>, Stop> {
    let mut names = Names::of::<C>();
    let tasks = params.into_iter().map(|params| Submission::<C>::child(run, &params).into_task_of_batch(&mut names));
    let tasks = tasks.collect::<Result<Vec<_>, _>>()?;
    let mut ids = Vec::with_capacity(tasks.len());
    for chunk in tasks.chunks(CHILDREN_AT_ONCE) {
        let submitted = run.services.submit_many(chunk.to_vec()).await?;
        ids.extend(submitted.iter().map(|made| made.task_id));
    }
    Ok(ids)
}

/// The name by which a later attempt finds the child again: what it is, or what the handler calls it. It must not
/// depend on what else the attempt submits: one that goes on from a checkpoint submits only the rest.
fn child_key(run: &Run, given: Option<&str>, digest: [u8; 32]) -> Result<String, Invalid> {
    let (parent, step) = (run.task.id.0, run.task.phase.as_str());
    let Some(given) = given else {
        let what = digest.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        return Ok(format!("child/{parent}/{step}/{what}/{}", run.count_equal_children(digest)));
    };
    bounds::check_text("childKey", given, CHILD_KEY_BYTES)?;
    Ok(format!("child/{parent}/{step}/key/{given}"))
}

/// What must be the same for a repeated key.
fn digest(task: &NewTask) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(task.task_type.as_bytes());
    hash.update([0]);
    hash.update(task.parameters.as_str().as_bytes());
    hash.finalize().into()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(bounds::DURATION_MS)
}
