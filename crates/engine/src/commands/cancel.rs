//! Cancel: a task and all below it end, and handlers of this process hear of it at once.

use longhaul_domain::{
    Status, StoreError, Task, TaskId,
    contract::{broker::Signal, store::Access},
    event::EventKind,
};

use crate::Engine;

impl Engine {
    /// Cancels; an ended task is left alone. Answers with the status that the task has then.
    pub async fn cancel(&self, access: &Access, id: TaskId) -> Result<Status, StoreError> {
        let status = self.store.cancel_task(access, id).await?;
        if status == Status::Cancelled {
            self.look_at_leases.notify_one();
            self.tell_nodes(Signal::Cancelled { task_ids: vec![id] });
            self.tell_of(id, EventKind::Cancelled).await;
        }
        Ok(status)
    }

    /// Tells the listeners of a change to a task that is not at hand. News is not the truth: a failed look is logged.
    /// Answers with the task.
    pub(crate) async fn tell_of(&self, id: TaskId, event: EventKind) -> Option<Task> {
        match self.store.get_task(&Access::All, id).await {
            Ok(task) => {
                self.tell(&task, event);
                Some(task)
            }
            Err(error) => {
                tracing::debug!(%error, task_id = %id.0, "no news of a changed task");
                None
            }
        }
    }
}
