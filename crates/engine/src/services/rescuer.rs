//! The rescuer: tasks of nodes that died go back to the queue, or into quarantine after too many deaths (R23).

use std::{collections::BTreeSet, time::Duration};

use async_trait::async_trait;
use longhaul_domain::{
    StoreError, bounds::DURATION_MS, contract::store::RescueRequest, event::EventKind,
};

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
        let request = RescueRequest {
            asker: None,
            lease_ms: millis(settings.lease),
            max_crashes: settings.max_crashes,
            limit: BATCH,
            keep_for_host_ms: millis(settings.keep_for_host),
        };
        Self {
            every: settings.rescue_every,
            request,
        }
    }
}

impl Rescuer {
    /// After the store was away, every node is silent until it has found its way back. For half a lease only tasks of
    /// nodes that were dead before are taken, so that an outage does not count as the death of everybody.
    fn request_now(&self, in_touch_for: Option<Duration>) -> RescueRequest {
        let rest = Duration::from_millis(self.request.lease_ms / 2);
        match in_touch_for {
            Some(time) if time < rest => RescueRequest {
                lease_ms: DURATION_MS,
                ..self.request
            },
            Some(_) | None => self.request,
        }
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

    /// Whoever restarts alone on its file waits for what it left behind.
    fn is_urgent(&self) -> bool {
        true
    }

    async fn pass(&self, engine: &Engine) -> Result<Pass, StoreError> {
        let asker = engine.local_node().map(|node| node.id());
        let request = RescueRequest {
            asker,
            ..self.request_now(engine.in_touch_for())
        };
        let rescued = engine.store.rescue_tasks(&request).await?;
        let taken = rescued.requeued.len() + rescued.quarantined.len();
        if taken == 0 {
            return Ok(Pass::Clear);
        }
        engine.metrics.rescued(taken);
        tracing::warn!(
            requeued = rescued.requeued.len(),
            quarantined = rescued.quarantined.len(),
            "tasks were taken from nodes that died"
        );
        for id in rescued.requeued {
            if let Some(task) = engine.tell_of(id, EventKind::Requeued).await {
                engine.ring_for_task(&task);
            }
        }
        let mut parents = BTreeSet::new();
        for id in rescued.quarantined {
            parents.extend(
                engine
                    .tell_of(id, EventKind::DeadLettered)
                    .await
                    .and_then(|task| task.parent_id),
            );
        }
        engine.look_at_parents(parents).await;
        engine.wake();
        Ok(if taken == BATCH {
            Pass::More
        } else {
            Pass::Clear
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_an_outage_nobody_is_declared_dead_for_half_a_lease() {
        let rescuer = Rescuer::new(&DutySettings::default());
        let lease_ms = |in_touch_for| rescuer.request_now(in_touch_for).lease_ms;
        assert_eq!(lease_ms(None), 30_000);
        assert_eq!(lease_ms(Some(Duration::from_secs(14))), DURATION_MS);
        assert_eq!(lease_ms(Some(Duration::from_secs(16))), 30_000);
    }
}
