//! Submitting, typed: the same words for a user's tasks and for a handler's children.

use std::borrow::Cow;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use longhaul_domain::{
    Idempotency, Invalid, Json, NewTask, RetryPolicy, RunAt, StoreError, TaskId, Timestamp, bounds,
    contract::store::Submitted, event::EventKind,
};
use longhaul_engine::{metrics::Listener, trace};
use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};

use crate::{
    handle::Handle,
    kind::{Kind, Named},
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

/// The names of the task before. Those of a batch that have the same ones share them: each takes memory once.
#[derive(Debug, Default)]
struct Names {
    owner: Arc<str>,
    task_type: Arc<str>,
    queue: Arc<str>,
}

fn share(before: &mut Arc<str>, name: &str) -> Arc<str> {
    if **before != *name {
        *before = name.into();
    }
    Arc::clone(before)
}

/// A task that is about to be submitted; `.await` submits it.
#[must_use = "a submission does nothing until it is awaited"]
pub struct Submission<K: Kind> {
    services: Arc<Services>,
    /// The first thing that was wrong is told when it is awaited. Its names are empty until then.
    task: Result<NewTask, Invalid>,
    task_type: Cow<'static, str>,
    owner: Option<String>,
    queue: Option<String>,
    expected: Option<Duration>,
    idempotency: Option<String>,
    key_holds: Duration,
    /// The attempt that submits it as its child.
    parent: Option<Arc<Run>>,
    of: PhantomData<fn() -> K>,
}

impl<K: Kind> std::fmt::Debug for Submission<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Submission");
        shown
            .field("type", &self.task_type)
            .field("owner", &self.owner)
            .field("queue", &self.queue);
        shown.field("task", &self.task).finish()
    }
}

impl<T: Task> Submission<T> {
    /// A task of the default owner with the type's own settings.
    pub fn new(services: &Arc<Services>, params: &T::Params) -> Self {
        Self::of_type(services, Cow::Borrowed(T::TYPE), T::FINISH_STEP, params)
    }

    pub(crate) fn child(run: &Arc<Run>, params: &T::Params) -> Self {
        Self::new(&run.services, params).below(run)
    }
}

impl<P: Serialize + 'static, R: DeserializeOwned + 'static> Submission<Named<P, R>> {
    /// A task of the type of this name, with the type's own settings if this process knows it.
    pub fn named(services: &Arc<Services>, task_type: &str, params: &P) -> Self {
        let has_finish_step = services
            .registry
            .info(task_type)
            .is_some_and(|info| info.finish_step);
        Self::of_type(
            services,
            Cow::Owned(task_type.to_owned()),
            has_finish_step,
            params,
        )
    }

    /// The type is a parent with a `finish` step. To be said where the type is not registered.
    pub fn finish_step(self) -> Self {
        self.with(|task| task.finish_step = true)
    }
}

impl<K: Kind> Submission<K> {
    fn of_type(
        services: &Arc<Services>,
        task_type: Cow<'static, str>,
        finish_step: bool,
        params: &impl Serialize,
    ) -> Self {
        let info = services.registry.info(&task_type);
        let settings = info.map(|info| info.settings.clone()).unwrap_or_default();
        let task = Json::from_value("parameters", params).map(|parameters| NewTask {
            max_attempts: settings.max_attempts,
            timeout_ms: settings.timeout.map(exact_millis),
            finish_step,
            retry: settings.retry,
            ..NewTask::named(Arc::default(), Arc::default(), Arc::default(), parameters)
        });
        Self {
            services: Arc::clone(services),
            task,
            task_type,
            owner: None,
            queue: settings.queue,
            expected: settings.expected_duration,
            idempotency: None,
            key_holds: KEY_HOLDS,
            parent: None,
            of: PhantomData,
        }
    }

    /// As a child of this attempt.
    pub(crate) fn below(mut self, run: &Arc<Run>) -> Self {
        if let Ok(task) = &mut self.task {
            task.tier.clone_from(&run.task.tier);
            task.priority = run.task.priority;
            task.correlation_id.clone_from(&run.task.correlation_id);
            task.trace_context = run.trace_context().map(|context| context.to_string());
            task.parent = Some(run.lease);
        }
        self.owner = Some(run.task.owner.clone());
        self.parent = Some(Arc::clone(run));
        self
    }

    fn with(mut self, change: impl FnOnce(&mut NewTask)) -> Self {
        if let Ok(task) = &mut self.task {
            change(task);
        }
        self
    }

    /// Whose task it is.
    pub fn owner(mut self, owner: &str) -> Self {
        self.owner = Some(owner.to_owned());
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
        self.with(|task| task.run_at = RunAt::AfterMs(exact_millis(delay)))
    }

    /// Not before this moment.
    pub fn run_at(self, moment: impl Into<Timestamp>) -> Self {
        self.with(|task| task.run_at = RunAt::At(moment.into()))
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
        self.with(|task| task.timeout_ms = Some(exact_millis(timeout)))
    }

    /// When the task must have ended, attempts and waits together.
    pub fn deadline(self, moment: impl Into<Timestamp>) -> Self {
        self.with(|task| task.deadline_at = Some(moment.into()))
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

    /// How long the key gives the same task; a day if nothing is said. A child's key holds as long as its parent can run.
    pub const fn key_holds(mut self, holds: Duration) -> Self {
        self.key_holds = holds;
        self
    }

    /// The task as the store takes it, for a submit in a transaction of the caller's own. A child counts as submitted from here
    /// on: where that transaction may be rolled back and repeated, [`Self::idempotency_key`] makes it the same child.
    pub fn into_new_task(self) -> Result<NewTask, Invalid> {
        self.into_task_of_batch(&mut Names::default())
            .map(ChildNumber::keep)
    }

    /// The same for many, in order; what is wrong with the first bad one is wrong with all.
    pub fn into_new_tasks(batch: impl IntoIterator<Item = Self>) -> Result<Vec<NewTask>, Invalid> {
        let mut names = Names::default();
        batch
            .into_iter()
            .map(|submission| {
                submission
                    .into_task_of_batch(&mut names)
                    .map(ChildNumber::keep)
            })
            .collect()
    }

    fn into_task_of_batch(
        self,
        names: &mut Names,
    ) -> Result<(NewTask, Option<ChildNumber>), Invalid> {
        let mut task = self.task?;
        task.owner = share(
            &mut names.owner,
            self.owner.as_deref().unwrap_or(DEFAULT_OWNER),
        );
        task.task_type = share(&mut names.task_type, &self.task_type);
        if task.trace_context.is_none() {
            let here = trace::context_of(&tracing::Span::current());
            task.trace_context = here.map(|context| context.to_string());
        }
        let routed = || {
            self.services
                .routing
                .queue(task.tier.as_deref(), self.expected)
        };
        task.queue = share(
            &mut names.queue,
            self.queue.as_deref().unwrap_or_else(routed),
        );
        let mut number = None;
        task.idempotency = match (self.parent, self.idempotency) {
            (Some(run), given) => {
                let digest = digest(&task);
                if given.is_none() {
                    number = Some(ChildNumber::take(&run, digest));
                }
                let key = child_key(&run, given.as_deref(), number.as_ref())?;
                Some(Idempotency {
                    key,
                    digest,
                    ttl_ms: CHILD_KEY_HOLDS_MS,
                })
            }
            (None, Some(key)) => Some(Idempotency {
                key,
                digest: digest(&task),
                ttl_ms: exact_millis(self.key_holds),
            }),
            (None, None) => None,
        };
        task.check()?;
        Ok((task, number))
    }

    /// Gives it the tier that somebody knows its owner to have, if nothing is said. A child has its parent's.
    pub async fn take_tier_of_owner(&mut self) {
        if let Ok(task) = &mut self.task
            && task.tier.is_none()
            && self.parent.is_none()
        {
            task.tier = self
                .services
                .engine
                .tier_of(self.owner.as_deref().unwrap_or(DEFAULT_OWNER))
                .await;
        }
    }

    async fn submit(mut self) -> Result<Handle<K>, StoreError> {
        let services = Arc::clone(&self.services);
        self.take_tier_of_owner().await;
        let (task, number) = self.into_task_of_batch(&mut Names::default())?;
        let submitted = submit_one(&services, task).await?;
        ChildNumber::keep(((), number));
        Ok(Handle::new(services, submitted.task_id))
    }
}

impl<K: Kind> IntoFuture for Submission<K> {
    type Output = Result<Handle<K>, StoreError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.submit())
    }
}

/// Submits a task, starts it at once if this process can, and calls its type's hook.
pub(crate) async fn submit_one(
    services: &Arc<Services>,
    task: NewTask,
) -> Result<Submitted, StoreError> {
    let hook = services.registry.queued_hook(&task);
    services.warn_if_nobody_runs(&task);
    let submitted = worker::submit(services, task).await?;
    if let Some(hook) = hook.filter(|_| !submitted.repeated) {
        services
            .engine
            .metrics
            .processed(Listener::Hooks, EventKind::Submitted);
        services.hooks.spawn(hook(submitted.task_id));
    }
    Ok(submitted)
}

/// Submits many children, a thousand in a transaction.
pub(crate) async fn submit_children<C: Task>(
    run: &Arc<Run>,
    params: impl IntoIterator<Item = C::Params>,
) -> Result<Vec<TaskId>, Stop> {
    let mut names = Names::default();
    let children = params
        .into_iter()
        .map(|params| Submission::<C>::child(run, &params).into_task_of_batch(&mut names));
    let (tasks, numbers): (Vec<_>, Vec<_>) =
        children.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
    let mut ids = Vec::with_capacity(tasks.len());
    for chunk in tasks.chunks(CHILDREN_AT_ONCE) {
        let submitted = run.services.submit_many(chunk.to_vec()).await?;
        ids.extend(submitted.iter().map(|made| made.task_id));
    }
    for number in numbers {
        ChildNumber::keep(((), number));
    }
    Ok(ids)
}

/// The name by which a later attempt finds the child again: what it is, or what the handler calls it. It must not
/// depend on what else the attempt submits: one that goes on from a checkpoint submits only the rest.
fn child_key(
    run: &Run,
    given: Option<&str>,
    number: Option<&ChildNumber>,
) -> Result<String, Invalid> {
    let (parent, step) = (run.task.id.0, run.task.phase.as_str());
    if let Some(ChildNumber { digest, number, .. }) = number {
        let what = digest
            .iter()
            .fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
        return Ok(format!("child/{parent}/{step}/{what}/{number}"));
    }
    let given = given.unwrap_or_default();
    bounds::check_text("childKey", given, CHILD_KEY_BYTES)?;
    Ok(format!("child/{parent}/{step}/key/{given}"))
}

/// The number of a child among equal ones. It is given back unless it is kept: a submit that failed, or was given up, may be
/// made again, and is the same child then.
#[derive(Debug)]
struct ChildNumber {
    run: Arc<Run>,
    digest: [u8; 32],
    number: u64,
    is_kept: bool,
}

impl ChildNumber {
    fn take(run: &Arc<Run>, digest: [u8; 32]) -> Self {
        Self {
            run: Arc::clone(run),
            digest,
            number: run.number_child(digest),
            is_kept: false,
        }
    }

    /// What the number was for is made.
    fn keep<T>((made, number): (T, Option<Self>)) -> T {
        if let Some(mut number) = number {
            number.is_kept = true;
        }
        made
    }
}

impl Drop for ChildNumber {
    fn drop(&mut self) {
        if !self.is_kept {
            self.run.give_back_child(self.digest, self.number);
        }
    }
}

/// What must be the same for a repeated key.
fn digest(task: &NewTask) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(task.task_type.as_bytes());
    hash.update([0]);
    hash.update(task.parameters.as_str().as_bytes());
    hash.finalize().into()
}

/// As it was asked for: what is too long is refused, not cut.
pub(crate) fn exact_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
