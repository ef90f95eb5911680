//! The expirer: tasks past their deadline end, and attempts without a sign of life are failed (R23, R25).

use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::{StoreError, bounds::MAINTENANCE_BATCH, lifecycle::expire::Overdue};

use super::{DutySettings, millis};
use crate::{
    Engine,
    service::{Duty, Pass},
};

#[derive(Debug)]
pub struct Expirer {
    overdue: Overdue,
}

impl Expirer {
    pub fn new(settings: &DutySettings) -> Self {
        let (silent_ms, timeout_grace_ms) =
            (millis(settings.silent), millis(settings.timeout_grace));
        Self {
            overdue: Overdue {
                silent_ms,
                timeout_grace_ms,
            },
        }
    }
}

#[async_trait]
impl Duty for Expirer {
    fn name(&self) -> &'static str {
        "expirer"
    }

    fn every(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn pass(&self, engine: &Engine) -> Result<Pass, StoreError> {
        let expired = engine
            .store
            .expire_tasks(&self.overdue, MAINTENANCE_BATCH)
            .await?;
        if expired.ended > 0 {
            tracing::warn!(
                ended = expired.ended,
                "tasks were past their deadline or gave no sign of life"
            );
            engine.look_at_leases.notify_one();
            engine.tell_moves(&expired.moved);
        }
        Ok(if expired.ended >= MAINTENANCE_BATCH {
            Pass::More
        } else {
            Pass::Clear
        })
    }
}
