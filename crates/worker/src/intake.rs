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
        let hooks: Vec<_> = tasks.iter().map(|task| self.0.registry.queued_hook(task)).collect();
        let submitted = self.0.engine.submit_many(tasks).await?;
        for (hook, made) in hooks.into_iter().zip(&submitted) {
            if let Some(hook) = hook.filter(|_| !made.repeated) {
                self.0.hooks.spawn(hook(made.task_id));
            }
        }
        Ok(submitted)
    }

    async fn cancel(&self, access: &Access, id: TaskId) -> Result<Status, StoreError> {
        self.0.cancel(access, id).await
    }
}
