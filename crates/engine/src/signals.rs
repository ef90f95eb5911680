//! Receives the signals of other nodes and passes them to the components of this process.

use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::contract::{
    Notifier,
    broker::{Signal, Signals},
};
use tokio::time::Instant;

use crate::{direct_dispatch::DirectDispatch, wakeups::Wakeups};

/// Leases are checked at most this often, however many cancels arrive: each check is a statement.
const BETWEEN_LEASE_CHECKS: Duration = Duration::from_millis(50);

/// The components that signals are for.
#[derive(Debug)]
pub(crate) struct SignalReceivers {
    pub(crate) notifier: Arc<dyn Notifier>,
    pub(crate) direct_dispatch: Arc<DirectDispatch>,
    pub(crate) wakeups: Arc<Wakeups>,
}

impl SignalReceivers {
    /// Passes signals on until the broker is closed.
    pub(crate) async fn listen(self, mut signals: Box<dyn Signals>) {
        let mut checked_at = Instant::now();
        let mut check_at: Option<Instant> = None;

        loop {
            let next_check = check_at.unwrap_or(checked_at);

            // Cancels that arrive within the interval share one check of the leases.
            tokio::select! {
                signal = signals.next() => match signal {
                    Some(Signal::Cancelled { .. }) => {
                        let earliest = (checked_at + BETWEEN_LEASE_CHECKS).max(Instant::now());
                        check_at.get_or_insert(earliest);
                    }
                    Some(Signal::QueueChanged { queue }) => self.queue_changed(&queue),
                    Some(Signal::Backlogged { queues }) => self.backlogged(queues),
                    None => return,
                },

                () = tokio::time::sleep_until(next_check), if check_at.is_some() => {
                    checked_at = Instant::now();
                    check_at = None;
                    self.wakeups.notify_leases();
                }
            }
        }
    }

    fn queue_changed(&self, queue: &str) {
        self.notifier.notify(queue);
        self.wakeups.notify_dispatcher();
    }

    fn backlogged(&self, queues: Vec<String>) {
        let has_backlog = !queues.is_empty();
        self.direct_dispatch.set_backlogged(queues);
        if has_backlog {
            self.wakeups.notify_backlog();
        }
    }
}
