//! What a task type asks for, and what a worker offers.

use std::collections::HashMap;
use std::time::Duration;

use longhaul_domain::{Invalid, Json, NewTask, RetryPolicy, bounds};
use longhaul_engine::{pace::PollSettings, slots::QueueSlots};
use schemars::{JsonSchema, Schema};

use crate::{progress, submission::exact_millis};

/// What a type asks for when its submitter says nothing else. Every setting is optional.
#[derive(Debug, Clone, PartialEq)]
pub struct TypeSettings {
    /// The queue, whatever the tier.
    pub queue: Option<String>,
    /// About how long a task takes; with the tier it decides the queue.
    pub expected_duration: Option<Duration>,
    /// Attempts after which a task that keeps failing is a dead letter.
    pub max_attempts: u32,
    /// How long to wait before each further attempt.
    pub retry: RetryPolicy,
    /// How long one attempt may take.
    pub timeout: Option<Duration>,
    /// How many tasks of this type one worker runs at once.
    pub concurrency: Option<usize>,
    /// Named resources that each running task uses one of; their limits are the worker's.
    pub resources: Vec<String>,
    /// Whether handlers block or compute for long: they run off the async threads.
    pub blocking: bool,
    /// How often the state of a long handler is saved by itself.
    pub checkpoint_every: Duration,
    /// How long a permit is waited for before the task is put back for later.
    pub permit_wait: Duration,
    /// How long a handler that was told to stop may take before it is dropped at its next await.
    pub stop_grace: Duration,
    /// What the type's progress looks like, where it shows something of its own.
    pub progress: Option<Schema>,
}

impl Default for TypeSettings {
    fn default() -> Self {
        Self {
            queue: None,
            expected_duration: None,
            max_attempts: bounds::DEFAULT_MAX_ATTEMPTS,
            retry: RetryPolicy::default(),
            timeout: None,
            concurrency: None,
            resources: Vec::new(),
            blocking: false,
            checkpoint_every: Duration::from_secs(5),
            permit_wait: Duration::from_secs(10),
            stop_grace: Duration::from_secs(5),
            progress: None,
        }
    }
}

impl TypeSettings {
    /// What a type asks for that says nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Refuses what no task of the type could have, at the start instead of at each submit.
    pub(crate) fn check(&self, task_type: &str) -> Result<(), Invalid> {
        if self.concurrency == Some(0) {
            let problem = format!("of {task_type} is 0: none would ever run");
            return Err(Invalid::new("concurrency", problem, "at least 1"));
        }
        if self.timeout == Some(Duration::ZERO) {
            let problem = format!("of {task_type} is 0: every attempt would fail");
            return Err(Invalid::new("timeout", problem, "more than 0"));
        }
        let queue = self.queue.as_deref().unwrap_or("any");
        let task = NewTask {
            max_attempts: self.max_attempts,
            retry: self.retry,
            timeout_ms: self.timeout.map(exact_millis),
            ..NewTask::new("any", task_type, queue, Json::trusted("null".to_owned()))
        };
        task.check()
    }

    /// The queue, whatever the tier.
    #[must_use]
    pub fn queue(mut self, name: &str) -> Self {
        self.queue = Some(name.to_owned());
        self
    }

    /// About how long a task takes; with the tier it decides the queue.
    #[must_use]
    pub const fn expected_duration(mut self, duration: Duration) -> Self {
        self.expected_duration = Some(duration);
        self
    }

    /// Attempts after which a task that keeps failing is a dead letter.
    #[must_use]
    pub const fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// How long to wait before each further attempt.
    #[must_use]
    pub const fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// How long one attempt may take. Without it, as long as its node lives.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How many tasks of this type one worker runs at once.
    #[must_use]
    pub const fn concurrency(mut self, tasks: usize) -> Self {
        self.concurrency = Some(tasks);
        self
    }

    /// Adds a named resource that each running task uses one of; its limit is the worker's.
    #[must_use]
    pub fn resource(mut self, name: &str) -> Self {
        self.resources.push(name.to_owned());
        self
    }

    /// For handlers that block or compute for long. Their threads go on after a timeout or a cancel, to the next await, and keep
    /// their slots meanwhile.
    #[must_use]
    pub const fn blocking(mut self) -> Self {
        self.blocking = true;
        self
    }

    /// How often a [`State`](crate::State) is saved by itself; every 5 seconds if nothing is said.
    #[must_use]
    pub const fn checkpoint_every(mut self, interval: Duration) -> Self {
        self.checkpoint_every = interval;
        self
    }

    /// How long a permit is waited for before the task is put back for later; 10 seconds if nothing is said.
    #[must_use]
    pub const fn permit_wait(mut self, wait: Duration) -> Self {
        self.permit_wait = wait;
        self
    }

    /// How long a handler that was told to stop may take before it is dropped at its next await; 5 seconds if
    /// nothing is said. At a shutdown all have two seconds, after the time in which they may finish.
    #[must_use]
    pub const fn stop_grace(mut self, grace: Duration) -> Self {
        self.stop_grace = grace;
        self
    }

    /// What [`Progress::details`](crate::Progress::details) of the type carries; its schema is published.
    #[must_use]
    pub fn progress<D: JsonSchema>(mut self) -> Self {
        self.progress = Some(progress::schema_with::<D>());
        self
    }
}

/// What a worker offers.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// Shown to people; the identity is a random boot id.
    pub name: String,
    /// Where it runs, for people.
    pub host: String,
    /// Tasks that run at once.
    pub slots: usize,
    /// The queues that are served; none means every queue that the routing knows and the types name.
    pub queues: Vec<QueueSlots>,
    /// How many tasks may use a named resource at once.
    pub resources: HashMap<String, usize>,
    /// How many tasks of a type run at once, where operators say otherwise than the type does.
    pub types: HashMap<String, usize>,
    /// How often the store is asked for work when no bell rings.
    pub poll: PollSettings,
    /// How often the leases are renewed and looked at while something runs; a cancel elsewhere is heard within this.
    pub heartbeat: Duration,
    /// The same while nothing runs. The lease of the duties must be several times as long.
    pub idle_heartbeat: Duration,
    /// How long one heartbeat's answer is waited for.
    pub heartbeat_timeout: Duration,
    /// How old a claim that this worker does not know of must be to be handed back: longer than any claim's answer can
    /// be under way.
    pub stray_age: Duration,
    /// How long a shutdown waits for what runs.
    pub drain: Duration,
    /// Whether this process does the background duties when it holds their leases.
    pub duties: bool,
    /// Whether tasks of nodes that died are kept for their host, so that it pays to ask for them.
    pub asks_for_kept: bool,
}

impl WorkerSettings {
    /// The same with several heartbeats in a lease, which is how long a silent node counts as alive.
    #[must_use]
    pub fn within_lease(mut self, lease: Duration) -> Self {
        self.heartbeat = self.heartbeat.min(lease / 3);
        self.idle_heartbeat = self.idle_heartbeat.min(lease / 3);
        self.heartbeat_timeout = self.heartbeat_timeout.min(lease / 4);
        self
    }
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self {
            name: "longhaul".to_owned(),
            host: "localhost".to_owned(),
            slots: 100,
            queues: Vec::new(),
            resources: HashMap::new(),
            types: HashMap::new(),
            poll: PollSettings::default(),
            heartbeat: Duration::from_secs(1),
            idle_heartbeat: Duration::from_secs(5),
            heartbeat_timeout: Duration::from_secs(7),
            stray_age: Duration::from_secs(30),
            drain: Duration::from_secs(30),
            duties: true,
            asks_for_kept: false,
        }
    }
}
