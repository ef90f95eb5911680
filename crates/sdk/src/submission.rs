//! Typed submissions: of a program's tasks and of a handler's children.

use std::borrow::Cow;
use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use longhaul_domain::{
    Idempotency, Invalid, Json, NewTask, QueueName, RetryPolicy, RunAt, StoreError, TaskId,
    Timestamp, bounds, time::millis,
};
use longhaul_engine::{Submissions as _, trace};
use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};

use crate::{
    attempt::{AttemptContext, ChildNumbers},
    client::Client,
    handle::Handle,
    kind::{Kind, Named},
    stop::Stop,
    task::Task,
};

/// How long an idempotency key is valid by default.
const DEFAULT_KEY_TTL: Duration = Duration::from_secs(24 * 3_600);
/// How long a child's key is valid: as long as its parent may run again.
const CHILD_KEY_TTL_MS: u64 = 366 * 24 * 3_600 * 1_000;
/// The longest key of a child, in bytes. With the parent's id and step before it, it fits the
/// store's bound for keys.
const CHILD_KEY_BYTES: usize = 140;
/// Children that are submitted in one transaction.
const CHILDREN_PER_TRANSACTION: usize = 1_000;

/// The owner of tasks whose submitter names none.
const DEFAULT_OWNER: &str = "default";

/// The names of the task before. Tasks of a batch share equal names, so that each name is in memory
/// once.
#[derive(Debug, Default)]
struct Names {
    owner: Arc<str>,
    task_type: Arc<str>,
    queue: Option<QueueName>,
}

fn share(before: &mut Arc<str>, name: &str) -> Arc<str> {
    if **before != *name {
        *before = name.into();
    }
    Arc::clone(before)
}

fn share_queue(before: &mut Option<QueueName>, name: &str) -> Result<QueueName, Invalid> {
    match before {
        Some(before) if *before == *name => Ok(before.clone()),
        _ => Ok(before.insert(QueueName::parse(name)?).clone()),
    }
}

/// A task that is about to be submitted. `.await` submits it.
#[must_use = "a submission does nothing until it is awaited"]
pub struct Submission<K: Kind> {
    client: Arc<Client>,
    /// An error is returned when the submission is awaited. Its names are filled in then.
    task: Result<NewTask, Invalid>,
    task_type: Cow<'static, str>,
    owner: Option<String>,
    queue: Option<String>,
    expected: Option<Duration>,
    idempotency_key: Option<String>,
    key_ttl: Duration,
    /// The attempt that submits the task as its child.
    parent: Option<AttemptContext>,
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
    pub fn new(client: &Arc<Client>, params: &T::Params) -> Self {
        Self::of_type(client, Cow::Borrowed(T::TYPE), T::FINISH_STEP, params)
    }

    pub(crate) fn child(parent: &AttemptContext, params: &T::Params) -> Self {
        Self::new(parent.client(), params).below(parent)
    }
}

impl<P: Serialize + 'static, R: DeserializeOwned + 'static> Submission<Named<P, R>> {
    /// A task of the type of this name, with the type's own settings if it is registered here.
    pub fn named(client: &Arc<Client>, task_type: &str, params: &P) -> Self {
        let has_finish_step = client
            .registry
            .info(task_type)
            .is_some_and(|info| info.finish_step);

        Self::of_type(
            client,
            Cow::Owned(task_type.to_owned()),
            has_finish_step,
            params,
        )
    }

    /// Says that the type has a `finish` step. Needed where the type is not registered.
    pub fn finish_step(self) -> Self {
        self.with(|task| task.finish_step = true)
    }
}

impl<K: Kind> Submission<K> {
    fn of_type(
        client: &Arc<Client>,
        task_type: Cow<'static, str>,
        finish_step: bool,
        params: &impl Serialize,
    ) -> Self {
        let info = client.registry.info(&task_type);
        let settings = info.map(|info| info.settings.clone()).unwrap_or_default();
        let queue = client.routing.otherwise.clone();
        let task = Json::from_value("parameters", params).map(|parameters| NewTask {
            max_attempts: settings.max_attempts,
            timeout_ms: settings.timeout.map(millis),
            finish_step,
            retry: settings.retry,
            ..NewTask::named(Arc::default(), Arc::default(), queue, parameters)
        });

        Self {
            client: Arc::clone(client),
            task,
            task_type,
            owner: None,
            queue: settings.queue,
            expected: settings.expected_duration,
            idempotency_key: None,
            key_ttl: DEFAULT_KEY_TTL,
            parent: None,
            of: PhantomData,
        }
    }

    /// Makes the task a child of this attempt.
    pub(crate) fn below(mut self, attempt: &AttemptContext) -> Self {
        let parent = attempt.task();
        if let Ok(task) = &mut self.task {
            task.tier.clone_from(&parent.tier);
            task.priority = parent.priority;
            task.correlation_id.clone_from(&parent.correlation_id);
            task.trace_context = attempt.trace_context().map(|context| context.to_string());
            task.parent = Some(attempt.lease());
        }

        self.owner = Some(parent.owner.clone());
        self.parent = Some(attempt.clone());
        self
    }

    fn with(mut self, change: impl FnOnce(&mut NewTask)) -> Self {
        if let Ok(task) = &mut self.task {
            change(task);
        }
        self
    }

    /// The owner of the task.
    pub fn owner(mut self, owner: &str) -> Self {
        self.owner = Some(owner.to_owned());
        self
    }

    /// The owner's tier. With the expected duration it decides the queue.
    pub fn tier(self, tier: &str) -> Self {
        self.with(|task| task.tier = Some(tier.to_owned()))
    }

    /// The priority, from 1 (the default) to 9 (first).
    pub fn priority(self, priority: u8) -> Self {
        self.with(|task| task.priority = priority)
    }

    /// The queue, regardless of tier and expected duration. A node must serve it.
    pub fn queue(mut self, queue: &str) -> Self {
        self.queue = Some(queue.to_owned());
        self
    }

    /// How long the task takes, roughly. With the tier it decides the queue.
    pub const fn expected_duration(mut self, duration: Duration) -> Self {
        self.expected = Some(duration);
        self
    }

    /// Runs the task no earlier than this long from now.
    pub fn delay(self, delay: Duration) -> Self {
        self.with(|task| task.run_at = RunAt::AfterMs(millis(delay)))
    }

    /// Runs the task no earlier than this moment.
    pub fn run_at(self, moment: impl Into<Timestamp>) -> Self {
        self.with(|task| task.run_at = RunAt::At(moment.into()))
    }

    /// How many attempts may fail before the task is a dead letter.
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

    /// When the task must have ended, waits included.
    pub fn deadline(self, moment: impl Into<Timestamp>) -> Self {
        self.with(|task| task.deadline_at = Some(moment.into()))
    }

    /// A business id to search by.
    pub fn key(self, key: &str) -> Self {
        self.with(|task| task.task_key = Some(key.to_owned()))
    }

    /// Ties the task to a request of its submitter. Its children inherit the id.
    pub fn correlation_id(self, id: &str) -> Self {
        self.with(|task| task.correlation_id = Some(id.to_owned()))
    }

    /// A second submit with the same key and owner within a day returns the same task. A child's
    /// key has at most 140 bytes. It is unique within one step of its parent and valid as long as
    /// the parent can run: see [`Job::submit`](crate::Job::submit).
    pub fn idempotency_key(mut self, key: &str) -> Self {
        self.idempotency_key = Some(key.to_owned());
        self
    }

    /// How long the idempotency key is valid: a day by default. A child's key is valid as long as
    /// its parent can run.
    pub const fn key_holds(mut self, holds: Duration) -> Self {
        self.key_ttl = holds;
        self
    }

    /// The task as the store takes it, for a submit in the caller's own transaction.
    ///
    /// A child counts as submitted from here on. If the transaction may be rolled back and
    /// repeated, give the child an [`Self::idempotency_key`].
    pub fn into_new_task(self) -> Result<NewTask, Invalid> {
        self.finish(&mut Names::default())
            .map(PreparedTask::into_submitted)
    }

    /// The same for many, in order. One invalid submission makes all of them fail.
    pub fn into_new_tasks(batch: impl IntoIterator<Item = Self>) -> Result<Vec<NewTask>, Invalid> {
        let mut names = Names::default();
        batch
            .into_iter()
            .map(|submission| {
                let prepared = submission.finish(&mut names)?;
                Ok(prepared.into_submitted())
            })
            .collect()
    }

    /// Fills in what the submitter left open.
    fn finish(self, names: &mut Names) -> Result<PreparedTask, Invalid> {
        let mut task = self.task?;
        let owner = self.owner.as_deref().unwrap_or(DEFAULT_OWNER);
        task.owner = share(&mut names.owner, owner);
        task.task_type = share(&mut names.task_type, &self.task_type);

        if task.trace_context.is_none() {
            let current = trace::context_of(&tracing::Span::current());
            task.trace_context = current.map(|context| context.to_string());
        }

        task.queue = match &self.queue {
            Some(queue) => {
                // Of several wrong names, the queue is reported last, as by the task's own check.
                bounds::check_name("userId", &task.owner)?;
                bounds::check_label("taskType", &task.task_type)?;
                share_queue(&mut names.queue, queue)?
            }
            None => {
                let routing = &self.client.routing;
                routing.queue(task.tier.as_deref(), self.expected).clone()
            }
        };

        let mut number = None;
        task.idempotency = match (self.parent, self.idempotency_key) {
            (Some(parent), key) => {
                let digest = digest(&task);
                if key.is_none() {
                    number = Some(ChildNumber::take(&parent, digest));
                }

                let key = child_key(&parent, key.as_deref(), number.as_ref())?;
                Some(Idempotency {
                    key,
                    digest,
                    ttl_ms: CHILD_KEY_TTL_MS,
                })
            }
            (None, Some(key)) => Some(Idempotency {
                key,
                digest: digest(&task),
                ttl_ms: millis(self.key_ttl),
            }),
            (None, None) => None,
        };

        task.check()?;
        Ok(PreparedTask { task, number })
    }

    /// Looks up the tier of the owner, unless the submitter named a tier. A child has the tier of
    /// its parent.
    pub async fn take_tier_of_owner(&mut self) {
        if let Ok(task) = &mut self.task
            && task.tier.is_none()
            && self.parent.is_none()
        {
            let owner = self.owner.as_deref().unwrap_or(DEFAULT_OWNER);
            task.tier = self.client.engine.tier_of(owner).await;
        }
    }

    async fn submit(mut self) -> Result<Handle<K>, StoreError> {
        let client = Arc::clone(&self.client);
        self.take_tier_of_owner().await;

        let PreparedTask { task, number } = self.finish(&mut Names::default())?;
        let submitted = client.submit(task).await?;

        ChildNumber::keep(number);
        Ok(Handle::new(client, submitted.task_id))
    }
}

impl<K: Kind> IntoFuture for Submission<K> {
    type Output = Result<Handle<K>, StoreError>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.submit())
    }
}

/// Submits many children, a thousand in a transaction.
pub(crate) async fn submit_children<C: Task>(
    parent: &AttemptContext,
    params: impl IntoIterator<Item = C::Params>,
) -> Result<Vec<TaskId>, Stop> {
    let mut names = Names::default();
    let mut tasks = Vec::new();
    let mut numbers = Vec::new();
    for params in params {
        let child = Submission::<C>::child(parent, &params).finish(&mut names)?;
        tasks.push(child.task);
        numbers.push(child.number);
    }

    let mut ids = Vec::with_capacity(tasks.len());
    for chunk in tasks.chunks(CHILDREN_PER_TRANSACTION) {
        let submitted = parent.client().submit_many(chunk.to_vec()).await?;
        ids.extend(submitted.iter().map(|made| made.task_id));
    }

    numbers.into_iter().for_each(ChildNumber::keep);
    Ok(ids)
}

/// A task that is ready for the store.
struct PreparedTask {
    task: NewTask,
    /// The number of an equal child, returned unless the child is submitted.
    number: Option<ChildNumber>,
}

impl PreparedTask {
    /// The task, which counts as submitted from here on.
    fn into_submitted(self) -> NewTask {
        ChildNumber::keep(self.number);
        self.task
    }
}

/// The key by which a later attempt finds the child again. It depends only on the child itself, or
/// on the key that the handler gave: an attempt that continues from a checkpoint submits only the
/// remaining children.
fn child_key(
    parent: &AttemptContext,
    given: Option<&str>,
    number: Option<&ChildNumber>,
) -> Result<String, Invalid> {
    let task = parent.task();
    let parent_id = task.id.0;
    let step = task.phase.as_str();

    if let Some(ChildNumber { digest, number, .. }) = number {
        let digest = hex::encode(digest);
        return Ok(format!("child/{parent_id}/{step}/{digest}/{number}"));
    }

    let given = given.unwrap_or_default();
    bounds::check_text("childKey", given, CHILD_KEY_BYTES)?;
    Ok(format!("child/{parent_id}/{step}/key/{given}"))
}

/// The number of a child among equal ones. It is returned on drop unless it is kept: a submit that
/// failed or was dropped may be repeated, and is the same child then.
#[derive(Debug)]
struct ChildNumber {
    numbers: Arc<ChildNumbers>,
    digest: [u8; 32],
    number: u64,
    is_used: bool,
}

impl ChildNumber {
    fn take(parent: &AttemptContext, digest: [u8; 32]) -> Self {
        let numbers = Arc::clone(parent.child_numbers());
        Self {
            number: numbers.take(digest),
            numbers,
            digest,
            is_used: false,
        }
    }

    /// Keeps the number: its child was submitted.
    fn keep(number: Option<Self>) {
        if let Some(mut number) = number {
            number.is_used = true;
        }
    }
}

impl Drop for ChildNumber {
    fn drop(&mut self) {
        if !self.is_used {
            self.numbers.give_back(self.digest, self.number);
        }
    }
}

/// A digest of what must be equal when an idempotency key is used again.
fn digest(task: &NewTask) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(task.task_type.as_bytes());
    hash.update([0]);
    hash.update(task.parameters.as_str().as_bytes());
    hash.finalize().into()
}
