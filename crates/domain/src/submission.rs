//! New tasks, as callers submit them.

use std::sync::Arc;

use crate::{
    bounds, error::Invalid, ids::TaskId, json::Json, names::QueueName, retry::RetryPolicy,
    task::Lease, time::Timestamp,
};

/// When the first attempt may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunAt {
    Now,
    /// At a moment. One that has passed means now, with that due time in the order of the queue.
    At(Timestamp),
    /// This many milliseconds after the store accepts the task, by the store's clock.
    AfterMs(u64),
}

/// The idempotency key of a request: repeated with it, the request makes no second task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// The caller's key, unique per owner.
    pub key: String,
    /// The digest of the request's body. The same key with another digest is refused.
    pub digest: [u8; 32],
    /// How long the key is remembered, in milliseconds.
    pub ttl_ms: u64,
}

/// A task to be made. [`NewTask::new`] fills in the defaults. Tasks of a batch share their names.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTask {
    /// The id from [`next_id`](crate::contract::store), if the caller has drawn one.
    pub id: Option<TaskId>,
    pub owner: Arc<str>,
    pub tier: Option<String>,
    pub task_type: Arc<str>,
    pub task_key: Option<String>,
    pub queue: QueueName,
    pub priority: u8,
    pub run_at: RunAt,
    pub max_attempts: u32,
    pub timeout_ms: Option<u64>,
    pub deadline_at: Option<Timestamp>,
    /// Whether the type has a `finish` step for parents.
    pub finish_step: bool,
    pub retry: RetryPolicy,
    pub parameters: Json,
    pub memo: Option<Json>,
    pub correlation_id: Option<String>,
    pub trace_context: Option<String>,
    pub idempotency: Option<Idempotency>,
    /// The attempt that submits this task as its child. A stale one is refused.
    pub parent: Option<Lease>,
    /// Whether the store notifies within the commit. Only where the notifier allows it.
    pub notifies: bool,
}

impl NewTask {
    pub fn new(owner: &str, task_type: &str, queue: QueueName, parameters: Json) -> Self {
        Self::named(owner.into(), task_type.into(), queue, parameters)
    }

    /// The same, with names that other tasks share.
    pub fn named(owner: Arc<str>, task_type: Arc<str>, queue: QueueName, parameters: Json) -> Self {
        Self {
            id: None,
            owner,
            tier: None,
            task_type,
            task_key: None,
            queue,
            priority: *bounds::PRIORITY.start(),
            run_at: RunAt::Now,
            max_attempts: bounds::DEFAULT_MAX_ATTEMPTS,
            timeout_ms: None,
            deadline_at: None,
            finish_step: false,
            retry: RetryPolicy::default(),
            parameters,
            memo: None,
            correlation_id: None,
            trace_context: None,
            idempotency: None,
            parent: None,
            notifies: false,
        }
    }

    /// Refuses the first invalid field.
    pub fn check(&self) -> Result<(), Invalid> {
        bounds::check_name("userId", &self.owner)?;
        bounds::check_label("taskType", &self.task_type)?;
        bounds::check_priority(self.priority)?;
        bounds::check_max_attempts(self.max_attempts)?;
        self.retry.check()?;
        self.check_times()?;
        let names = [
            ("tier", &self.tier),
            ("taskKey", &self.task_key),
            ("correlationId", &self.correlation_id),
            ("traceContext", &self.trace_context),
        ];

        for (field, value) in names {
            if let Some(text) = value {
                bounds::check_name(field, text)?;
            }
        }

        if let Some(idempotency) = &self.idempotency {
            bounds::check_name("Idempotency-Key", &idempotency.key)?;
            bounds::check_duration_ms("idempotencyTtl", idempotency.ttl_ms)?;
        }
        Ok(())
    }

    fn check_times(&self) -> Result<(), Invalid> {
        match self.run_at {
            RunAt::Now => {}
            RunAt::At(moment) => moment.check("runAt")?,
            RunAt::AfterMs(ms) => bounds::check_duration_ms("delay", ms)?,
        }

        if let Some(ms) = self.timeout_ms {
            if ms == 0 {
                return Err(Invalid::new("timeout", "is 0", "at least 1ms"));
            }
            bounds::check_duration_ms("timeout", ms)?;
        }
        if let Some(moment) = self.deadline_at {
            moment.check("deadline")?;
        }
        Ok(())
    }
}
