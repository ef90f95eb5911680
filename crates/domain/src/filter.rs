//! Which tasks a list or a bulk change is about, and where a page ends.

use crate::{
    bounds,
    error::Invalid,
    ids::TaskId,
    task::{Status, Task},
    time::Timestamp,
};

/// Conditions that all hold. An empty list or a `None` asks nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskFilter {
    /// Whose tasks; `None` is for those who may see all.
    pub owner: Option<String>,
    pub statuses: Vec<Status>,
    pub task_types: Vec<String>,
    pub queues: Vec<String>,
    pub task_key: Option<String>,
    pub parent_id: Option<TaskId>,
    pub created_after: Option<Timestamp>,
    pub created_before: Option<Timestamp>,
    pub due_after: Option<Timestamp>,
    pub due_before: Option<Timestamp>,
}

impl TaskFilter {
    /// Whether all conditions hold for `task`.
    pub fn matches(&self, task: &Task) -> bool {
        let named = |wanted: &Option<String>, is: Option<&str>| {
            wanted.as_deref().is_none_or(|name| is == Some(name))
        };
        let listed = |wanted: &[String], is: &String| wanted.is_empty() || wanted.contains(is);
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

    /// Refuses conditions that no task could be stored under.
    pub fn check(&self) -> Result<(), Invalid> {
        self.owner
            .as_ref()
            .map_or(Ok(()), |owner| bounds::check_name("userId", owner))?;
        self.task_key
            .as_ref()
            .map_or(Ok(()), |key| bounds::check_name("taskKey", key))?;
        self.task_types
            .iter()
            .try_for_each(|name| bounds::check_label("taskType", name))?;
        self.queues
            .iter()
            .try_for_each(|name| bounds::check_label("queue", name))?;
        bounds::check_batch("taskType", self.task_types.len(), 100)?;
        bounds::check_batch("queue", self.queues.len(), 100)?;
        let times = [
            ("createdAfter", self.created_after),
            ("createdBefore", self.created_before),
            ("dueAfter", self.due_after),
            ("dueBefore", self.due_before),
        ];
        times
            .into_iter()
            .try_for_each(|(field, at)| at.map_or(Ok(()), |moment| moment.check(field)))
    }
}

/// Lists run along the ids, which grow with the time of submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SortOrder {
    #[default]
    NewestFirst,
    OldestFirst,
}

/// One page of a list: at most `size` tasks that come after `after` in the order.
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

/// How long ended tasks are kept (R29). A child stays as long as its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// For all ends but the two below, in milliseconds.
    pub ended_ms: u64,
    /// For `FAILED` and `DEAD_LETTER`, which people may still want to replay.
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
