//! The outbox.

use async_trait::async_trait;
use longhaul_domain::{
    StoreError, Timestamp, bounds, contract::store::Outbox, event::LeasedMessage,
};

use super::{MemoryStore, attempts::check_limit, state::State};

#[async_trait]
impl Outbox for MemoryStore {
    async fn lease_outbox(
        &self,
        limit: usize,
        ttl_ms: u64,
    ) -> Result<Vec<LeasedMessage>, StoreError> {
        let (mut state, now) = self.begin();
        state.lease_outbox(limit, ttl_ms, now)
    }

    async fn confirm_outbox(&self, ids: &[i64]) -> Result<(), StoreError> {
        let (mut state, _) = self.begin();
        for id in ids {
            state.outbox.remove(id);
        }
        Ok(())
    }

    async fn count_outbox(&self, limit: usize) -> Result<usize, StoreError> {
        check_limit(limit, bounds::COUNT)?;
        Ok(self.begin().0.outbox.len().min(limit))
    }
}

impl State {
    pub(super) fn lease_outbox(
        &mut self,
        limit: usize,
        ttl_ms: u64,
        now: Timestamp,
    ) -> Result<Vec<LeasedMessage>, StoreError> {
        check_limit(limit, bounds::MAINTENANCE_BATCH)?;
        bounds::check_duration_ms("ttl", ttl_ms)?;

        let rows = self.outbox.iter_mut();
        let free = rows.filter(|(_, row)| row.leased_until.is_none_or(|until| until <= now));
        let lease = free.take(limit).map(|(id, row)| {
            row.tries += 1;
            row.leased_until = Some(now.plus_ms(ttl_ms));
            LeasedMessage {
                id: *id,
                tries: row.tries,
                message: row.message.clone(),
            }
        });

        Ok(lease.collect())
    }
}
