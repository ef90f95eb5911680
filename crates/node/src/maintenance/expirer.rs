//! The expirer: ends tasks past their deadline, and fails attempts that are silent or past their
//! timeout.

use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::{StoreError, bounds::MAINTENANCE_BATCH, lifecycle::expire::Overdue};

use super::{
    MaintenanceSettings,
    job::{MaintenanceJob, Pass},
    millis,
};
use longhaul_engine::Engine;

/// See the module.
#[derive(Debug)]
pub struct Expirer {
    overdue: Overdue,
}

impl Expirer {
    /// The job with the settings that concern it.
    pub fn new(settings: &MaintenanceSettings) -> Self {
        Self {
            overdue: Overdue {
                silent_ms: millis(settings.silent),
                timeout_grace_ms: millis(settings.timeout_grace),
            },
        }
    }
}

#[async_trait]
impl MaintenanceJob for Expirer {
    fn name(&self) -> &'static str {
        "expirer"
    }

    fn every(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn pass(&self, engine: &Engine) -> Result<Pass, StoreError> {
        let ended = engine.expire(&self.overdue, MAINTENANCE_BATCH).await?;
        Ok(Pass::after(ended, MAINTENANCE_BATCH))
    }
}
