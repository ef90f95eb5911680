//! The rescuer: tasks of nodes that died go back to the queue, or into quarantine after too many deaths (R23).

use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::{StoreError, contract::store::RescueRequest, event::EventKind};

use super::{DutySettings, millis};
use crate::{
    Engine,
    service::{Duty, Pass},
};

/// Tasks that one pass takes, so that a restart does not stampede.
const BATCH: usize = 200;

#[derive(Debug)]
pub struct Rescuer {
    every: Duration,
    request: RescueRequest,
}

impl Rescuer {
    pub fn new(settings: &DutySettings) -> Self {
        let request =
            RescueRequest { lease_ms: millis(settings.lease), max_crashes: settings.max_crashes, limit: BATCH };
        Self { every: settings.rescue_every, request }
    }
}

#[async_trait]
impl Duty for Rescuer {
    fn name(&self) -> &'static str {
        "rescuer"
    }

    fn every(&self) -> Duration {
        self.every
    }

    async fn pass(&self, engine: &Engine) -> Result<Pass, StoreError> {
        let rescued = engine.store.rescue_tasks(&self.request).await?;
        let taken = rescued.requeued.len() + rescued.quarantined.len();
        if taken == 0 {
            return Ok(Pass::Clear);
        }
        tracing::warn!(
            requeued = rescued.requeued.len(),
            quarantined = rescued.quarantined.len(),
            "tasks were taken from nodes that died"
        );
        for id in rescued.requeued {
            engine.tell_of(id, EventKind::Requeued).await;
        }
        for id in rescued.quarantined {
            engine.tell_of(id, EventKind::DeadLettered).await;
        }
        engine.doorbell.ring("");
        Ok(if taken == BATCH { Pass::More } else { Pass::Clear })
    }
}
