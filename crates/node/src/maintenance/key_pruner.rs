//! The key pruner: removes idempotency keys that have expired, and tokens that ended long ago.

use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::{StoreError, bounds::MAINTENANCE_BATCH};
use longhaul_engine::Engine;

use super::job::{MaintenanceJob, Pass};

/// See the module.
#[derive(Debug)]
pub struct KeyPruner;

#[async_trait]
impl MaintenanceJob for KeyPruner {
    fn name(&self) -> &'static str {
        "key_pruner"
    }

    fn every(&self) -> Duration {
        Duration::from_secs(60)
    }

    async fn pass(&self, engine: &Engine) -> Result<Pass, StoreError> {
        let maintenance = engine.maintenance();
        let keys = maintenance
            .prune_idempotency_keys(MAINTENANCE_BATCH)
            .await?;
        let tokens = engine.tokens().prune_tokens(MAINTENANCE_BATCH).await?;
        Ok(Pass::after(keys.max(tokens), MAINTENANCE_BATCH))
    }
}
