//! The filters of lists and bulk changes, and pages.

use crate::{
    bounds,
    error::Invalid,
    ids::TaskId,
    names::QueueName,
    task::{Status, TaskRecord},
    time::Timestamp,
};

/// Conditions that must all hold. An empty list or a `None` is no condition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskFilter {
    /// The owner; `None` is for callers that may see all tasks.
    pub owner: Option<String>,
    pub statuses: Vec<Status>,
    pub task_types: Vec<String>,
    pub queues: Vec<QueueName>,
    pub task_key: Option<String>,
    pub parent_id: Option<TaskId>,
    pub created_after: Option<Timestamp>,
    pub created_before: Option<Timestamp>,
    pub due_after: Option<Timestamp>,
    pub due_before: Option<Timestamp>,
}

impl TaskFilter {
    /// Whether all conditions hold for `task`.
    pub fn matches(&self, task: &TaskRecord) -> bool {
        let named = |wanted: &Option<String>, is: Option<&str>| {
            wanted.as_deref().is_none_or(|name| is == Some(name))
        };
        let within = |from: Option<Timestamp>, to: Option<Timestamp>, at: Timestamp| {
            from.is_none_or(|from| from <= at) && to.is_none_or(|to| at < to)
        };

        named(&self.owner, Some(&task.owner))
            && (self.statuses.is_empty() || self.statuses.contains(&task.status))
            && listed(&self.task_types, &task.task_type)
            && listed(&self.queues, &task.queue)
            && named(&self.task_key, task.task_key.as_deref())
            && self
                .parent_id
                .is_none_or(|parent| task.parent_id == Some(parent))
            && within(self.created_after, self.created_before, task.created_at)
            && within(self.due_after, self.due_before, task.due_at)
    }

    /// Refuses conditions that no stored task can meet.
    pub fn check(&self) -> Result<(), Invalid> {
        if let Some(owner) = &self.owner {
            bounds::check_name("userId", owner)?;
        }
        if let Some(key) = &self.task_key {
            bounds::check_name("taskKey", key)?;
        }
        for name in &self.task_types {
            bounds::check_label("taskType", name)?;
        }

        bounds::check_batch("taskType", self.task_types.len(), 100)?;
        bounds::check_batch("queue", self.queues.len(), 100)?;
        let times = [
            ("createdAfter", self.created_after),
            ("createdBefore", self.created_before),
            ("dueAfter", self.due_after),
            ("dueBefore", self.due_before),
        ];

        for (field, moment) in times {
            moment.map_or(Ok(()), |moment| moment.check(field))?;
        }
        Ok(())
    }
}

fn listed<T: PartialEq>(wanted: &[T], is: &T) -> bool {
    wanted.is_empty() || wanted.contains(is)
}

/// The order of a list by id, and so by the time of submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SortOrder {
    #[default]
    NewestFirst,
    OldestFirst,
}

/// A page of a list: at most `size` tasks that come after `after` in the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRequest {
    pub order: SortOrder,
    pub after: Option<TaskId>,
    pub size: usize,
}

impl PageRequest {
    pub fn first(size: usize) -> Self {
        Self {
            order: SortOrder::NewestFirst,
            after: None,
            size,
        }
    }

    pub fn check(&self) -> Result<(), Invalid> {
        if (1..=bounds::PAGE_SIZE).contains(&self.size) {
            return Ok(());
        }

        Err(Invalid::new(
            "size",
            format!("is {}", self.size),
            format!("1 to {}", bounds::PAGE_SIZE),
        ))
    }
}

/// A page and where the next one starts.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    pub items: Vec<T>,
    pub next: Option<TaskId>,
}

/// How long ended tasks are kept. A child is kept as long as its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// For all statuses but the two below, in milliseconds.
    pub ended_ms: u64,
    /// For `FAILED` and `DEAD_LETTER`, which people may still replay.
    pub dead_letter_ms: u64,
}

impl Retention {
    /// How long a task that ended as `status` is kept, if it ended at all.
    pub const fn keep_ms(&self, status: Status) -> Option<u64> {
        match status {
            Status::Completed | Status::CompletedWithErrors | Status::Cancelled => {
                Some(self.ended_ms)
            }
            Status::Failed | Status::DeadLetter => Some(self.dead_letter_ms),
            Status::Queued | Status::Running | Status::Retrying | Status::Waiting => None,
        }
    }
}
