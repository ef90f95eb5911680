//! Cancel: a task and all below it end, and handlers of this process hear of it at once.

use longhaul_domain::{
    Status, StoreError, Task, TaskId,
    contract::{
        broker::Signal,
        store::{Access, Cancelled, Moved},
    },
    event::EventKind,
};

use super::finish::kind_of;
use crate::Engine;

impl Engine {
    /// Cancels; an ended task is left alone.
    pub async fn cancel(&self, access: &Access, id: TaskId) -> Result<Cancelled, StoreError> {
        let done = self.store.cancel_task(access, id).await?;
        self.tell_moves(&done.moved);
        if done.status == Status::Cancelled {
            // Also when it had been cancelled before: whoever cancelled it may not have come to say so.
            self.look_at_leases.notify_one();
            self.tell_nodes(Signal::Cancelled { task_ids: vec![id] });
            if done.moved.is_empty() {
                self.tell_of(id, EventKind::Cancelled).await;
            }
        }
        Ok(done)
    }

    /// Tells the listeners of tasks that the store has moved, and rings for those that can be claimed now.
    pub(crate) fn tell_moves(&self, moved: &[Moved]) {
        for Moved { task, .. } in moved {
            self.tell(task, kind_of(task.status));
            if task.status.is_claimable() {
                self.doorbell.ring(&task.queue);
                self.ring_for_task(task);
            }
        }
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
