//! The intake of a process that has a worker: submits start at once where there is room, hooks are called, and types that
//! are not cancellable are left alone while they run.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_domain::{
    NewTask, Status, StoreError, TaskId,
    contract::store::{Access, Submitted},
};
use longhaul_engine::Intake;

use crate::{run::Services, submission::submit_one};

/// What a server hands its submits to.
#[derive(Debug, Clone)]
pub struct WorkerIntake(pub Arc<Services>);

#[async_trait]
impl Intake for WorkerIntake {
    async fn submit(&self, task: NewTask) -> Result<Submitted, StoreError> {
        submit_one(&self.0, task).await
    }

    async fn submit_many(&self, tasks: Vec<NewTask>) -> Result<Vec<Submitted>, StoreError> {
        self.0.submit_many(tasks).await
    }

    async fn cancel(&self, access: &Access, id: TaskId) -> Result<Status, StoreError> {
        self.0.cancel(access, id).await
    }
}
