//! Where a server's submits and cancels go: to the engine alone, or to the node of the same
//! process, which starts at once what it has slots for.

use async_trait::async_trait;
use longhaul_domain::{
    NewTask, Status, StoreError, TaskId,
    contract::store::{Access, Submitted},
};

use crate::Engine;

/// Takes submits and cancels.
#[async_trait]
pub trait Submissions: Send + Sync + std::fmt::Debug {
    /// Makes one task. When this returns, the task is durable.
    async fn submit(&self, task: NewTask) -> Result<Submitted, StoreError>;
    /// Makes all of them, in order, or none.
    async fn submit_many(&self, tasks: Vec<NewTask>) -> Result<Vec<Submitted>, StoreError>;
    /// Cancels a task and all below it. Returns the status that the task has then; an ended task
    /// stays as it is.
    async fn cancel(&self, access: &Access, id: TaskId) -> Result<Status, StoreError>;
}

#[async_trait]
impl Submissions for Engine {
    async fn submit(&self, task: NewTask) -> Result<Submitted, StoreError> {
        Self::submit(self, task).await
    }

    async fn submit_many(&self, tasks: Vec<NewTask>) -> Result<Vec<Submitted>, StoreError> {
        Self::submit_many(self, tasks).await
    }

    async fn cancel(&self, access: &Access, id: TaskId) -> Result<Status, StoreError> {
        Ok(Self::cancel(self, access, id).await?.status)
    }
}
