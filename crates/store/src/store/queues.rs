//! Queues and their waiting tasks.

use async_trait::async_trait;
use longhaul_domain::{
    QueueName, StoreError, TaskRecord, Timestamp,
    contract::{
        broker::Hint,
        store::{QueueCommands, QueueHead, Queues},
    },
    queue::Queue,
};

use super::SqlStore;
use crate::operations::{
    maintenance::PauseQueue,
    read::{CountAhead, ListQueues, NextDueAt},
    waiting::{ListDue, ListHeads, PromoteTasks},
};

#[async_trait]
impl Queues for SqlStore {
    async fn list_queues(&self) -> Result<Vec<Queue>, StoreError> {
        self.run("list_queues", ListQueues).await
    }

    async fn list_due(&self, queue: &QueueName, limit: usize) -> Result<Vec<Hint>, StoreError> {
        let queue = queue.clone();
        self.run("list_due", ListDue { queue, limit }).await
    }

    async fn list_heads(&self) -> Result<Vec<QueueHead>, StoreError> {
        self.run("list_heads", ListHeads).await
    }

    async fn next_due_at(
        &self,
        queues: &[QueueName],
        task_types: &[String],
    ) -> Result<Option<Timestamp>, StoreError> {
        let operation = NextDueAt {
            queues: queues.to_vec(),
            task_types: task_types.to_vec(),
        };
        self.run("next_due_at", operation).await
    }

    async fn count_ahead(
        &self,
        task: &TaskRecord,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize, StoreError> {
        let operation = CountAhead {
            queue: task.queue.clone(),
            priority: task.priority,
            due_at: task.due_at,
            id: task.id,
            now,
            limit,
        };
        self.run("count_ahead", operation).await
    }
}

#[async_trait]
impl QueueCommands for SqlStore {
    async fn pause_queue(&self, name: &QueueName) -> Result<(), StoreError> {
        let operation = PauseQueue {
            name: name.clone(),
            paused: true,
        };
        self.run("pause_queue", operation).await
    }

    async fn resume_queue(&self, name: &QueueName) -> Result<(), StoreError> {
        let operation = PauseQueue {
            name: name.clone(),
            paused: false,
        };
        self.run("resume_queue", operation).await
    }

    async fn promote_tasks(
        &self,
        queue: &QueueName,
        waited_ms: u64,
        most: usize,
    ) -> Result<usize, StoreError> {
        let operation = PromoteTasks {
            queue: queue.clone(),
            waited_ms,
            most,
        };
        self.run("promote_tasks", operation).await
    }
}
