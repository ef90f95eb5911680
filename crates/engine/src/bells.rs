//! Bells over the broker, from what is known of a task. Without a broker nothing here does anything.

use longhaul_domain::{
    Task, TaskId, Timestamp,
    contract::broker::{Bell, Signal},
};

use crate::Engine;

/// Delays of new tasks that the broker is asked to keep, in milliseconds. What is due later is found by the ringer.
const SOON_MS: u64 = 60_000;

impl Engine {
    /// Rings for tasks that are due, soon and beside everything else.
    pub(crate) fn ring_now(&self, bells: impl IntoIterator<Item = Bell>) {
        if let Some(ring) = &self.direct_ring
            && !ring.ring(bells)
        {
            self.look_at_lanes.notify_one();
        }
    }

    /// Rings for a task in so many milliseconds; now, if that is none.
    pub(crate) fn ring_in(&self, bell: Bell, delay_ms: u64) {
        match &self.direct_ring {
            Some(ring) if delay_ms > 0 => ring.ring_later(bell, delay_ms),
            Some(_) | None => self.ring_now([bell]),
        }
    }

    /// Rings for a new task, if it is due soon.
    pub(crate) fn ring_soon(&self, bell: Bell, delay_ms: u64) {
        if delay_ms <= SOON_MS {
            self.ring_in(bell, delay_ms);
        }
    }

    /// Rings for a task that was changed, if it can be claimed.
    pub(crate) fn ring_for_task(&self, task: &Task) {
        if self.direct_ring.is_some() && task.status.is_claimable() {
            let delay = self.store_time.until(task.due_at);
            self.ring_soon(
                bell_of(task),
                u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
            );
        }
    }

    /// Something may be claimable whose tasks are not known here.
    pub fn wake(&self) {
        self.doorbell.ring("");
        self.look_at_lanes.notify_one();
    }

    /// Tells all nodes, this one included, if they can be told.
    pub(crate) fn tell_nodes(&self, signal: Signal) {
        if let Some(broker) = &self.broker {
            broker.signal(signal);
        }
    }
}

/// The bell of a task as it is.
pub(crate) fn bell_of(task: &Task) -> Bell {
    Bell {
        task_id: task.id,
        owner: task.owner.clone(),
        task_type: task.task_type.clone(),
        queue: task.queue.clone(),
        priority: task.priority,
        retry_count: task.retry_count,
        submitted_at: task.created_at,
        due_at: task.due_at,
        looks: 0,
        correlation_id: task.correlation_id.clone(),
        trace_context: task.trace_context.clone(),
    }
}

/// When a task was made, by its id.
pub(crate) fn made_at(id: TaskId) -> Timestamp {
    let millis = u64::try_from(id.0.as_u128() >> 80).unwrap_or(0);
    Timestamp::from_micros(0).plus_ms(millis)
}
