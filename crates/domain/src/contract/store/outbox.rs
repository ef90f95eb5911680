//! Messages that are committed with a change and published later.

use async_trait::async_trait;

use crate::{error::StoreError, event::LeasedMessage};

/// The outbox.
#[async_trait]
pub trait Outbox: Send + Sync {
    /// Hands out messages that no relay holds, for `ttl_ms`, oldest first.
    async fn lease_outbox(
        &self,
        limit: usize,
        ttl_ms: u64,
    ) -> Result<Vec<LeasedMessage>, StoreError>;

    /// Removes messages that the broker has confirmed.
    async fn confirm_outbox(&self, ids: &[i64]) -> Result<(), StoreError>;

    /// Messages that are not confirmed yet, handed out or not. Counting stops at `limit`.
    async fn count_outbox(&self, limit: usize) -> Result<usize, StoreError>;
}
