//! The count compactor: folds the count deltas that transactions appended into their sums.

use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::{StoreError, bounds::MAINTENANCE_BATCH};
use longhaul_engine::Engine;

use super::job::{MaintenanceJob, Pass};

/// See the module.
#[derive(Debug)]
pub struct CountCompactor;

#[async_trait]
impl MaintenanceJob for CountCompactor {
    fn name(&self) -> &'static str {
        "count_compactor"
    }

    fn every(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn pass(&self, engine: &Engine) -> Result<Pass, StoreError> {
        let folded = engine
            .maintenance()
            .compact_counts(MAINTENANCE_BATCH)
            .await?;
        Ok(Pass::after(folded, MAINTENANCE_BATCH))
    }
}
