//! Change: a person moves a task in time, priority or queue, alone or with others of its kind.

use longhaul_domain::{
    StoreError, Task, TaskId,
    contract::store::{Access, BulkChange, BulkOutcome, BulkRequest},
    event::EventKind,
    lifecycle::reschedule::Reschedule,
};

use crate::Engine;

impl Engine {
    pub async fn reschedule(&self, access: &Access, id: TaskId, change: &Reschedule) -> Result<Task, StoreError> {
        let task = self.store.reschedule_task(access, id, change).await?;
        self.tell(&task, EventKind::Rescheduled);
        self.doorbell.ring(&task.queue);
        Ok(task)
    }

    /// One step of a bulk change. News of each task would be a flood; listeners see the tasks when they look.
    pub async fn change_many(&self, request: &BulkRequest) -> Result<BulkOutcome, StoreError> {
        let outcome = self.store.change_tasks(request).await?;
        match request.change {
            BulkChange::Cancel => self.look_at_leases.notify_one(),
            BulkChange::Retry | BulkChange::Reschedule(_) => self.doorbell.ring(""),
        }
        Ok(outcome)
    }
}
