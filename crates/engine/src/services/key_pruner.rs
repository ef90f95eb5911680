//! The key pruner: idempotency keys whose promise has run out are forgotten (R9), and tokens that ended long ago.

use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::{StoreError, bounds::MAINTENANCE_BATCH};

use crate::{
    Engine,
    service::{Duty, Pass},
};

#[derive(Debug)]
pub struct KeyPruner;

#[async_trait]
impl Duty for KeyPruner {
    fn name(&self) -> &'static str {
        "key_pruner"
    }

    fn every(&self) -> Duration {
        Duration::from_secs(60)
    }

    async fn pass(&self, engine: &Engine) -> Result<Pass, StoreError> {
        let removed = engine
            .store
            .prune_idempotency_keys(MAINTENANCE_BATCH)
            .await?;
        let tokens = engine.store.prune_tokens(MAINTENANCE_BATCH).await?;
        Ok(if removed.max(tokens) >= MAINTENANCE_BATCH {
            Pass::More
        } else {
            Pass::Clear
        })
    }
}
