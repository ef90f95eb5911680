//! Hints and signals over the broker. Without a broker nothing here does anything.

use longhaul_domain::{
    TaskId, TaskRecord, Timestamp,
    contract::broker::{Hint, Signal},
    time::millis,
};

use crate::Engine;

/// The longest delay of a new task whose hint the broker keeps, in milliseconds. The dispatcher
/// finds tasks that are due later.
const SOON_MS: u64 = 60_000;

impl Engine {
    /// Publishes hints for due tasks, without waiting for the broker.
    pub(crate) fn publish_hints(&self, hints: impl IntoIterator<Item = Hint>) {
        if let Some(dispatch) = &self.direct_dispatch
            && !dispatch.publish(hints)
        {
            self.wakeups.notify_dispatcher();
        }
    }

    /// Publishes a hint after this many milliseconds.
    pub(crate) fn publish_hint_in(&self, hint: Hint, delay_ms: u64) {
        match &self.direct_dispatch {
            Some(dispatch) if delay_ms > 0 => dispatch.publish_later(hint, delay_ms),
            Some(_) | None => self.publish_hints([hint]),
        }
    }

    /// Publishes the hint of a new task, if it is due soon.
    pub(crate) fn publish_hint_if_soon(&self, hint: Hint, delay_ms: u64) {
        if delay_ms <= SOON_MS {
            self.publish_hint_in(hint, delay_ms);
        }
    }

    /// Publishes a hint for a task that was changed, if it can be claimed soon.
    pub(crate) fn publish_hint_of(&self, task: &TaskRecord) {
        if self.direct_dispatch.is_none() || !task.status.is_claimable() {
            return;
        }

        let delay_ms = millis(self.store_time.until(task.due_at));
        self.publish_hint_if_soon(Hint::of(task), delay_ms);
    }

    /// Some tasks may be claimable, and the caller does not know which.
    pub fn wake(&self) {
        self.notifier.notify("");
        self.wakeups.notify_dispatcher();
    }

    /// Reports the backlogged queues to all nodes. All other queues are open.
    pub fn report_backlogged(&self, queues: Vec<String>) {
        self.signal_nodes(Signal::Backlogged { queues });
    }

    /// Sends a signal to all nodes, this one included, if there is a broker.
    pub(crate) fn signal_nodes(&self, signal: Signal) {
        if let Some(broker) = &self.broker {
            broker.signal(signal);
        }
    }
}

/// When a task was made, by its id.
pub(crate) fn submitted_at(id: TaskId) -> Timestamp {
    let millis = u64::try_from(id.0.as_u128() >> 80).unwrap_or(0);
    Timestamp::from_micros(0).plus_ms(millis)
}
