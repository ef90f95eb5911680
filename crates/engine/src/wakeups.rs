//! What components of one process wake each other for.

use tokio::sync::Notify;

/// Notifications that wait for their receiver. Several of one kind become one.
#[derive(Debug, Default)]
pub struct Wakeups {
    leases: Notify,
    dispatcher: Notify,
    backlog: Notify,
}

impl Wakeups {
    /// This process changed something that a running handler may have to stop for: the heartbeat
    /// checks the leases now.
    pub fn notify_leases(&self) {
        self.leases.notify_one();
    }

    /// Waits for [`Self::notify_leases`].
    pub async fn wait_for_leases(&self) {
        self.leases.notified().await;
    }

    /// There may be tasks without a hint: the dispatcher of this process looks now, if it runs.
    pub fn notify_dispatcher(&self) {
        self.dispatcher.notify_one();
    }

    /// Waits for [`Self::notify_dispatcher`].
    pub async fn wait_for_dispatcher(&self) {
        self.dispatcher.notified().await;
    }

    /// The dispatcher has reported a backlogged queue: the claimer of this process claims from the
    /// store now.
    pub fn notify_backlog(&self) {
        self.backlog.notify_one();
    }

    /// Waits for [`Self::notify_backlog`].
    pub async fn wait_for_backlog(&self) {
        self.backlog.notified().await;
    }
}
