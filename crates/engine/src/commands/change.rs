//! Change: a person moves tasks in time, priority or queue, or pauses a queue.

use longhaul_domain::{
    QueueName, Status, StoreError, TaskId, TaskRecord,
    contract::{
        broker::Signal,
        store::{Access, BulkChange, BulkOutcome, BulkRequest},
    },
    event::EventKind,
    lifecycle::reschedule::Reschedule,
};

use crate::{Engine, metrics::OTHER};

/// Steps of one call: with a thousand tasks each, some seconds of the store's time.
const BULK_STEPS: usize = 50;

impl Engine {
    pub async fn reschedule(
        &self,
        access: &Access,
        id: TaskId,
        change: &Reschedule,
    ) -> Result<TaskRecord, StoreError> {
        let task = self.store.reschedule_task(access, id, change).await?;
        self.publish_event(&task, EventKind::Rescheduled);
        self.notifier.notify(&task.queue);
        self.publish_hint_of(&task);
        Ok(task)
    }

    /// Stops claims from a queue.
    pub async fn pause_queue(&self, name: &QueueName) -> Result<(), StoreError> {
        self.store.pause_queue(name).await?;
        self.signal_queue_changed(name);
        Ok(())
    }

    /// Reopens a paused queue, and wakes the nodes that serve it.
    pub async fn resume_queue(&self, name: &QueueName) -> Result<(), StoreError> {
        self.store.resume_queue(name).await?;
        self.notifier.notify(name);
        self.signal_queue_changed(name);
        Ok(())
    }

    fn signal_queue_changed(&self, name: &QueueName) {
        self.signal_nodes(Signal::QueueChanged {
            queue: name.to_string(),
        });
    }

    /// One step of a bulk change. A cancel leaves running tasks alone whose type is not
    /// cancellable. No events are published, because one for each task would be a flood.
    pub async fn change_many(&self, request: &BulkRequest) -> Result<BulkOutcome, StoreError> {
        let request = BulkRequest {
            spared: self.catalog.uncancellable().map(str::to_owned).collect(),
            ..request.clone()
        };
        let outcome = self.store.change_tasks(&request).await?;
        match request.change {
            BulkChange::Cancel => {
                let task_type = match request.filter.task_types.as_slice() {
                    [only] => only,
                    _ => OTHER,
                };
                let changed = outcome.changed as u64;
                self.metrics.ended(task_type, Status::Cancelled, changed);

                self.wakeups.notify_leases();
                self.signal_nodes(Signal::Cancelled {
                    task_ids: Vec::new(),
                });
            }
            BulkChange::Retry | BulkChange::Reschedule(_) => self.wake(),
        }

        Ok(outcome)
    }

    /// A bulk change in as many steps as one call may take. Where it stopped, the next call
    /// continues.
    pub async fn change_all(&self, mut request: BulkRequest) -> Result<BulkOutcome, StoreError> {
        let mut total = BulkOutcome {
            matched: 0,
            changed: 0,
            next: None,
        };

        for _ in 0..BULK_STEPS {
            let step = self.change_many(&request).await?;
            total.matched += step.matched;
            total.changed += step.changed;
            total.next = step.next;
            request.after = step.next;

            if step.next.is_none() {
                break;
            }
        }

        Ok(total)
    }
}
