//! Queues, and the tasks that wait in them.

use async_trait::async_trait;

use crate::{
    contract::broker::Hint, error::StoreError, names::QueueName, queue::Queue, task::TaskRecord,
    time::Timestamp,
};

/// The first waiting task of one queue, priority and type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueHead {
    pub queue: QueueName,
    /// [`bounds::FORWARD`](crate::bounds::FORWARD) for tasks that were promoted.
    pub priority: u8,
    pub task_type: String,
    /// When it became due.
    pub due_at: Timestamp,
}

/// What waits in queues.
#[async_trait]
pub trait Queues: Send + Sync {
    async fn list_queues(&self) -> Result<Vec<Queue>, StoreError>;

    /// The first due tasks of a queue, of all types, in the order of claims; none while it is
    /// paused. Tasks that another process has just made or moved may be missing for some seconds.
    async fn list_due(&self, queue: &QueueName, limit: usize) -> Result<Vec<Hint>, StoreError>;

    /// For each queue, priority and type that a due task waits in, paused or not, when the first of
    /// them became due; sorted. What another process has just done may be missing for some seconds.
    async fn list_heads(&self) -> Result<Vec<QueueHead>, StoreError>;

    /// When the next task of these queues and types is due; in the past when one waits already.
    async fn next_due_at(
        &self,
        queues: &[QueueName],
        task_types: &[String],
    ) -> Result<Option<Timestamp>, StoreError>;

    /// How many tasks of the same queue are due at `now` and would be claimed before this one,
    /// promoted ones included. Counting stops at `limit`.
    async fn count_ahead(
        &self,
        task: &TaskRecord,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize, StoreError>;
}

/// What changes a queue. Nodes have to be notified of each change, so only the engine calls it.
#[async_trait]
pub trait QueueCommands: Send + Sync {
    async fn pause_queue(&self, name: &QueueName) -> Result<(), StoreError>;

    async fn resume_queue(&self, name: &QueueName) -> Result<(), StoreError>;

    /// Moves up to `most` tasks of a queue that have waited for longer than `waited_ms` before all
    /// others of the queue, the longest waiting first. Of each type at most `most` are there at a
    /// time, so a type that no node serves leaves room for the others. They keep their priority,
    /// and lose the place with their next change. Of each type and priority only the first
    /// [`bounds::AGING_WINDOW`](crate::bounds::AGING_WINDOW) are examined. Answers with how many
    /// were moved.
    async fn promote_tasks(
        &self,
        queue: &QueueName,
        waited_ms: u64,
        most: usize,
    ) -> Result<usize, StoreError>;
}
