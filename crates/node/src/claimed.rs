//! Tasks between their claim and the start of their handlers.

use std::sync::Arc;

use longhaul_domain::TaskRecord;
use longhaul_sdk::StopReason;

use crate::{executor, in_flight::Taken, node::Node, slots::Room};

/// Claimed tasks that have their slots and are about to start. On drop they are handed back.
pub(crate) struct ClaimedTasks {
    node: Arc<Node>,
    tasks: Vec<(TaskRecord, Taken)>,
}

impl ClaimedTasks {
    pub(crate) fn new(node: &Arc<Node>) -> Self {
        Self {
            node: Arc::clone(node),
            tasks: Vec::new(),
        }
    }

    /// Takes tasks that the store has just returned in flight.
    pub(crate) fn add(&mut self, tasks: Vec<TaskRecord>) {
        let engine = self.node.engine();
        // The store never dates a claim before the last change of its task, and a clock that was
        // ahead may have made one. The earliest claim is the closest to the store's time.
        if let Some(claimed_at) = tasks.iter().filter_map(|task| task.last_attempt_at).min() {
            engine.store_time().note(claimed_at);
        }

        for task in tasks {
            engine.metrics().claimed(&task);
            // The lock is released before an attempt is stopped, which takes another lock.
            let taken = self.node.in_flight().take(&task);
            let Some(taken) = taken else { continue };

            if let Some(older) = taken.replaces {
                self.node.attempts.stop(&older, StopReason::Lost);
            }
            self.tasks.push((task, taken));
        }
    }

    /// Starts the handlers. A task that was cancelled since its claim is stopped by the next
    /// heartbeat.
    pub(crate) fn start(&mut self) {
        for (task, taken) in std::mem::take(&mut self.tasks) {
            if task.node_id != Some(self.node.id()) {
                // The node was declared dead since the claim: other nodes run its tasks.
                self.node.in_flight().drop_lease(&taken.lease);
                self.node.wakeups.notify_slot();
            } else if self.node.shutdown.is_draining() {
                executor::hand_back(&self.node, &task, taken);
            } else {
                executor::start(&self.node, task, taken);
            }
        }
    }
}

impl Drop for ClaimedTasks {
    fn drop(&mut self) {
        for (task, taken) in self.tasks.drain(..) {
            executor::hand_back(&self.node, &task, taken);
        }
    }
}

/// Takes claimed tasks in flight and starts them.
pub(crate) fn start(node: &Arc<Node>, tasks: Vec<TaskRecord>) {
    let mut batch = ClaimedTasks::new(node);
    batch.add(tasks);
    batch.start();
}

/// Starts tasks that were claimed by their ids. A task that was moved to a queue which is not
/// served here is handed back: other nodes have slots for it.
pub(crate) fn start_served(node: &Arc<Node>, tasks: Vec<TaskRecord>) {
    let is_served = |task: &TaskRecord| {
        let room = node.room_for(&task.queue, &task.task_type);
        room != Room::NotServed
    };
    let (served, moved): (Vec<_>, Vec<_>) = tasks.into_iter().partition(is_served);

    start(node, served);
    for task in moved {
        // The lock is released here: the hand-back takes it again.
        let taken = node.in_flight().take(&task);
        if let Some(taken) = taken {
            executor::hand_back(node, &task, taken);
        }
    }
}
