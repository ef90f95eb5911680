//! What the loops of a node wake each other for.

use tokio::sync::Notify;

/// Notifications that wait for their loop. Several of one kind become one.
#[derive(Debug)]
pub(crate) struct Wakeups {
    claimer: Notify,
    /// One for each queue consumer, in the order of the queues.
    consumers: Vec<Notify>,
    reporter: Notify,
}

impl Wakeups {
    pub(crate) fn new(queues: usize) -> Self {
        Self {
            claimer: Notify::new(),
            consumers: (0..queues).map(|_| Notify::new()).collect(),
            reporter: Notify::new(),
        }
    }

    /// A slot may be free: the claimer and every queue consumer look.
    pub(crate) fn notify_slot(&self) {
        self.claimer.notify_one();
        self.consumers.iter().for_each(Notify::notify_one);
    }

    /// A hint was refused: the claimer claims its task once there is a slot.
    pub(crate) fn notify_refused_hint(&self) {
        self.claimer.notify_one();
    }

    /// Waits for [`Self::notify_slot`] or [`Self::notify_refused_hint`].
    pub(crate) async fn wait_in_claimer(&self) {
        self.claimer.notified().await;
    }

    /// Waits for [`Self::notify_slot`] in the consumer of this index.
    pub(crate) async fn wait_in_consumer(&self, index: usize) {
        self.consumers[index].notified().await;
    }

    /// An attempt has ended: the reporter delivers its report.
    pub(crate) fn notify_report(&self) {
        self.reporter.notify_one();
    }

    /// Waits for [`Self::notify_report`].
    pub(crate) async fn wait_for_report(&self) {
        self.reporter.notified().await;
    }
}
