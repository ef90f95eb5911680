//! Expire: ends tasks past their deadline, and fails attempts that are hung.

use longhaul_domain::{StoreError, lifecycle::expire::Overdue};

use crate::Engine;

impl Engine {
    /// One bounded pass. Returns how many tasks were past their deadline or hung.
    pub async fn expire(&self, overdue: &Overdue, limit: usize) -> Result<usize, StoreError> {
        let expired = self.store.expire_tasks(overdue, limit).await?;
        if expired.ended > 0 {
            tracing::warn!(
                tasks = expired.ended,
                "expirer ended tasks that were past their deadline or hung"
            );
            self.wakeups.notify_leases();
            self.publish_moves(&expired.moved);
        }

        Ok(expired.ended)
    }
}
