//! The doorbell of one process.

use async_trait::async_trait;
use longhaul_domain::contract::{Doorbell, doorbell::RungFor};
use tokio::sync::Notify;

/// Keeps one ring that nobody waits for: whoever looks up next hears it. A ring wakes one of those who wait; whoever
/// claims looks at all of its queues.
#[derive(Debug, Default)]
pub struct LocalDoorbell {
    rung: Notify,
}

impl LocalDoorbell {
    pub fn new() -> Self {
        Self::default()
    }
}

#[async_trait]
impl Doorbell for LocalDoorbell {
    fn ring(&self, _queue: &str) {
        self.rung.notify_one();
    }

    async fn heard(&self) -> Vec<RungFor> {
        self.rung.notified().await;
        Vec::new()
    }
}
