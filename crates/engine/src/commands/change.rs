//! Change: a person moves a task in time, priority or queue, alone or with others of its kind.

use longhaul_domain::{
    Status, StoreError, Task, TaskId,
    contract::{
        broker::Signal,
        store::{Access, BulkChange, BulkOutcome, BulkRequest},
    },
    event::EventKind,
    lifecycle::reschedule::Reschedule,
};

use crate::{Engine, metrics::OTHER};

/// Steps of one call: with a thousand tasks in each, some seconds of a store's time.
const BULK_STEPS: usize = 50;

impl Engine {
    pub async fn reschedule(
        &self,
        access: &Access,
        id: TaskId,
        change: &Reschedule,
    ) -> Result<Task, StoreError> {
        let task = self.store.reschedule_task(access, id, change).await?;
        self.tell(&task, EventKind::Rescheduled);
        self.doorbell.ring(&task.queue);
        self.ring_for_task(&task);
        Ok(task)
    }

    /// Claims nothing more from a queue.
    pub async fn pause_queue(&self, name: &str) -> Result<(), StoreError> {
        self.store.pause_queue(name).await?;
        self.tell_nodes(Signal::QueueChanged {
            queue: name.to_owned(),
        });
        Ok(())
    }

    /// Opens a paused queue, and has nodes look at it.
    pub async fn resume_queue(&self, name: &str) -> Result<(), StoreError> {
        self.store.resume_queue(name).await?;
        self.doorbell.ring(name);
        self.tell_nodes(Signal::QueueChanged {
            queue: name.to_owned(),
        });
        Ok(())
    }

    /// One step of a bulk change. News of each task would be a flood; listeners see the tasks when they look.
    pub async fn change_many(&self, request: &BulkRequest) -> Result<BulkOutcome, StoreError> {
        let outcome = self.store.change_tasks(request).await?;
        match request.change {
            BulkChange::Cancel => {
                let types = &request.filter.task_types;
                let of_type = if types.len() == 1 { &types[0] } else { OTHER };
                self.metrics
                    .ended(of_type, Status::Cancelled, outcome.changed as u64);
                self.look_at_leases.notify_one();
                self.tell_nodes(Signal::Cancelled {
                    task_ids: Vec::new(),
                });
            }
            BulkChange::Retry | BulkChange::Reschedule(_) => self.wake(),
        }
        Ok(outcome)
    }

    /// A bulk change in as many steps as one call may take. Where it stopped, the next call goes on.
    pub async fn change_all(&self, mut request: BulkRequest) -> Result<BulkOutcome, StoreError> {
        let mut all = BulkOutcome {
            matched: 0,
            changed: 0,
            next: None,
        };
        for _ in 0..BULK_STEPS {
            let step = self.change_many(&request).await?;
            all.matched += step.matched;
            all.changed += step.changed;
            all.next = step.next;
            request.after = step.next;
            if step.next.is_none() {
                break;
            }
        }
        Ok(all)
    }
}
