//! The notifier of one process.

use async_trait::async_trait;
use longhaul_domain::contract::{Notifier, notifier::HintedTask};
use tokio::sync::Notify;

/// Stores one hint while no claimer waits for it, so that the next wait returns at once. A hint
/// wakes one claimer, which then looks at all of its queues.
#[derive(Debug, Default)]
pub struct LocalNotifier {
    published: Notify,
}

impl LocalNotifier {
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl Notifier for LocalNotifier {
    fn notify(&self, _queue: &str) {
        self.published.notify_one();
    }

    async fn notified(&self) -> Vec<HintedTask> {
        self.published.notified().await;
        Vec::new()
    }
}
