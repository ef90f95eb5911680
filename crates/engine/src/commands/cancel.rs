//! Cancel: ends a task and all below it, and has the handlers of this process stop at once.

use longhaul_domain::{
    Status, StoreError, TaskId,
    contract::{
        broker::Signal,
        store::{Access, Cancelled},
    },
    event::EventKind,
    lifecycle::{Command, Refusal},
};

use crate::Engine;

impl Engine {
    /// Cancels a task; an ended one stays as it is. A running task of a type that is not
    /// cancellable is refused.
    pub async fn cancel(&self, access: &Access, id: TaskId) -> Result<Cancelled, StoreError> {
        self.refuse_uncancellable(access, id).await?;
        let cancelled = self.store.cancel_task(access, id).await?;
        self.publish_moves(&cancelled.moved);

        // Also when the task had been cancelled before: the process that cancelled it may have
        // crashed before it published anything.
        if cancelled.status == Status::Cancelled {
            self.wakeups.notify_leases();
            self.signal_nodes(Signal::Cancelled { task_ids: vec![id] });
            if cancelled.moved.is_empty() {
                self.publish_by_id(id, EventKind::Cancelled).await;
            }
        }

        Ok(cancelled)
    }

    /// Reads the task only where this process knows a type that is not cancellable.
    async fn refuse_uncancellable(&self, access: &Access, id: TaskId) -> Result<(), StoreError> {
        if self.catalog.uncancellable().next().is_none() {
            return Ok(());
        }

        let task = self.store.get_task(access, id).await?;
        let is_cancellable = self
            .catalog
            .get(&task.task_type)
            .is_none_or(|definition| definition.is_cancellable);
        if task.status == Status::Running && !is_cancellable {
            return Err(StoreError::Refused(Refusal::WrongState {
                command: Command::Cancel,
                status: task.status,
            }));
        }

        Ok(())
    }
}
