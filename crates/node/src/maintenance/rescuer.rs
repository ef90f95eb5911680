//! The rescuer: takes tasks from nodes that died. They go back to their queue, or into quarantine
//! after too many deaths.

use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::{StoreError, bounds::DURATION_MS, contract::store::RescueRequest};
use longhaul_engine::Engine;

use super::{
    MaintenanceSettings,
    job::{MaintenanceJob, Pass},
    millis,
};

/// Tasks that one pass takes, so that a restart does not stampede.
const BATCH: usize = 200;

/// See the module.
#[derive(Debug)]
pub struct Rescuer {
    every: Duration,
    request: RescueRequest,
}

impl Rescuer {
    /// The job with the settings that concern it.
    pub fn new(settings: &MaintenanceSettings) -> Self {
        let request = RescueRequest {
            asker: None,
            lease_ms: millis(settings.lease),
            max_crashes: settings.max_crashes,
            limit: BATCH,
            host_affinity_ms: millis(settings.host_affinity),
        };

        Self {
            every: settings.rescue_every,
            request,
        }
    }

    /// The request at a time when the store has answered for `store_answers_for`. After an outage
    /// of the store every node is silent until it has reconnected. For half a lease only tasks of
    /// nodes that were dead before are taken, so that an outage does not count as their death.
    fn request_now(&self, store_answers_for: Option<Duration>) -> RescueRequest {
        let half_a_lease = Duration::from_millis(self.request.lease_ms / 2);
        match store_answers_for {
            Some(time) if time < half_a_lease => RescueRequest {
                lease_ms: DURATION_MS,
                ..self.request
            },
            Some(_) | None => self.request,
        }
    }
}

#[async_trait]
impl MaintenanceJob for Rescuer {
    fn name(&self) -> &'static str {
        "rescuer"
    }

    fn every(&self) -> Duration {
        self.every
    }

    /// A process that restarts alone on its file waits for the tasks that it left behind.
    fn is_urgent(&self) -> bool {
        true
    }

    async fn pass(&self, engine: &Engine) -> Result<Pass, StoreError> {
        let asker = engine.local_node().map(|node| node.id());
        let request = RescueRequest {
            asker,
            ..self.request_now(engine.store_answers_for())
        };
        let taken = engine.rescue(&request).await?;
        Ok(Pass::after(taken, BATCH))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_node_is_declared_dead_for_half_a_lease_after_an_outage() {
        let rescuer = Rescuer::new(&MaintenanceSettings::default());
        let lease_ms = |store_answers_for| rescuer.request_now(store_answers_for).lease_ms;
        assert_eq!(lease_ms(None), 30_000);
        assert_eq!(lease_ms(Some(Duration::from_secs(14))), DURATION_MS);
        assert_eq!(lease_ms(Some(Duration::from_secs(16))), 30_000);
    }
}
