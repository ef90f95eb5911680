//! Promote: starts tasks that have waited too long before all others of their queue.

use longhaul_domain::{QueueName, StoreError};

use crate::Engine;

impl Engine {
    /// Promotes up to `most` tasks of a queue that have waited for longer than `waited_ms`.
    pub async fn promote(
        &self,
        queue: &QueueName,
        waited_ms: u64,
        most: usize,
    ) -> Result<(), StoreError> {
        if self.store.promote_tasks(queue, waited_ms, most).await? > 0 {
            self.notifier.notify(queue);
        }

        Ok(())
    }
}
