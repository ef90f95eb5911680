//! The settings of a task type.

use std::time::Duration;

use longhaul_domain::{Invalid, Json, NewTask, QueueName, RetryPolicy, bounds, time::millis};
use schemars::{JsonSchema, Schema};

use crate::progress;

/// The settings of a task type. Every setting is optional. A submitter may override some of them.
#[derive(Debug, Clone, PartialEq)]
pub struct TypeSettings {
    /// The queue, regardless of the tier.
    pub queue: Option<String>,
    /// How long a task takes, roughly. With the tier it decides the queue.
    pub expected_duration: Option<Duration>,
    /// How many attempts may fail before the task is a dead letter.
    pub max_attempts: u32,
    /// How long to wait before each further attempt.
    pub retry: RetryPolicy,
    /// How long one attempt may take.
    pub timeout: Option<Duration>,
    /// How many tasks of this type one node runs at once.
    pub concurrency: Option<usize>,
    /// Named resources. A running task uses one unit of each; the node sets their limits.
    pub resources: Vec<String>,
    /// Whether handlers block or compute for long. They run on threads of their own.
    pub blocking: bool,
    /// How often a [`State`](crate::State) is saved.
    pub checkpoint_every: Duration,
    /// How long a handler waits for a permit before its task is put back for later.
    pub permit_wait: Duration,
    /// How long a handler may take to stop before it is dropped at its next await.
    pub stop_grace: Duration,
    /// The schema of the type's progress, if it has details of its own.
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
    /// The default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Refuses settings that no task could have, once instead of at each submit.
    pub(crate) fn check(&self, task_type: &str) -> Result<(), Invalid> {
        if self.concurrency == Some(0) {
            let problem = format!("of {task_type} is 0: none would ever run");
            return Err(Invalid::new("concurrency", problem, "at least 1"));
        }
        if self.timeout == Some(Duration::ZERO) {
            let problem = format!("of {task_type} is 0: every attempt would fail");
            return Err(Invalid::new("timeout", problem, "more than 0"));
        }

        let queue = QueueName::parse(self.queue.as_deref().unwrap_or("any"))?;
        let task = NewTask {
            max_attempts: self.max_attempts,
            retry: self.retry,
            timeout_ms: self.timeout.map(millis),
            ..NewTask::new("any", task_type, queue, Json::trusted("null".to_owned()))
        };

        task.check()
    }

    /// The queue, regardless of the tier.
    #[must_use]
    pub fn queue(mut self, name: &str) -> Self {
        self.queue = Some(name.to_owned());
        self
    }

    /// How long a task takes, roughly. With the tier it decides the queue.
    #[must_use]
    pub const fn expected_duration(mut self, duration: Duration) -> Self {
        self.expected_duration = Some(duration);
        self
    }

    /// How many attempts may fail before the task is a dead letter.
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

    /// How long one attempt may take. Without a timeout it may take as long as its node lives.
    #[must_use]
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How many tasks of this type one node runs at once.
    #[must_use]
    pub const fn concurrency(mut self, tasks: usize) -> Self {
        self.concurrency = Some(tasks);
        self
    }

    /// Adds a named resource. A running task uses one unit of it; the node sets its limit.
    #[must_use]
    pub fn resource(mut self, name: &str) -> Self {
        self.resources.push(name.to_owned());
        self
    }

    /// For handlers that block or compute for long. After a timeout or a cancel their threads run
    /// on until the next await, and occupy their slots until then.
    #[must_use]
    pub const fn blocking(mut self) -> Self {
        self.blocking = true;
        self
    }

    /// How often a [`State`](crate::State) is saved: every 5 seconds by default.
    #[must_use]
    pub const fn checkpoint_every(mut self, interval: Duration) -> Self {
        self.checkpoint_every = interval;
        self
    }

    /// How long a handler waits for a permit before its task is put back for later: 10 seconds by
    /// default.
    #[must_use]
    pub const fn permit_wait(mut self, wait: Duration) -> Self {
        self.permit_wait = wait;
        self
    }

    /// How long a handler may take to stop before it is dropped at its next await: 5 seconds by
    /// default. At a shutdown every handler has two seconds, after the drain time.
    #[must_use]
    pub const fn stop_grace(mut self, grace: Duration) -> Self {
        self.stop_grace = grace;
        self
    }

    /// The type of [`Progress::details`](crate::Progress::details). Its schema is published.
    #[must_use]
    pub fn progress<D: JsonSchema>(mut self) -> Self {
        self.progress = Some(progress::schema_with::<D>());
        self
    }
}
