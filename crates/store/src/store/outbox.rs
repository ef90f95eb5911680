//! The outbox.

use async_trait::async_trait;
use longhaul_domain::{StoreError, contract::store::Outbox, event::LeasedMessage};

use super::SqlStore;
use crate::operations::outbox::{ConfirmOutbox, CountOutbox, LeaseOutbox};

#[async_trait]
impl Outbox for SqlStore {
    async fn lease_outbox(
        &self,
        limit: usize,
        ttl_ms: u64,
    ) -> Result<Vec<LeasedMessage>, StoreError> {
        let operation = LeaseOutbox { limit, ttl_ms };
        self.run("lease_outbox", operation).await
    }

    async fn confirm_outbox(&self, ids: &[i64]) -> Result<(), StoreError> {
        let ids = ids.to_vec();
        self.run("confirm_outbox", ConfirmOutbox { ids }).await
    }

    async fn count_outbox(&self, limit: usize) -> Result<usize, StoreError> {
        self.run("count_outbox", CountOutbox { limit }).await
    }
}
