//! The relay: publishes outbox messages, which were committed together with a change, to the
//! broker.
//!
//! A message is removed after the broker has confirmed it, never before. A relay that dies in
//! between sends it twice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::{
    StoreError,
    contract::broker::Published,
    event::{LeasedMessage, OutboxMessage},
};
use longhaul_engine::Engine;

use super::job::{MaintenanceJob, Pass};

/// Messages of one pass.
const BATCH: usize = 500;
/// The lease of a message, in milliseconds: longer than the broker's timeout. A message without a
/// confirmation is sent again when it ends.
const LEASE_MS: u64 = 30_000;
/// How often a message is sent that the broker refuses: for about ten minutes.
const MAX_TRIES: u32 = 20;
const IDLE: Duration = Duration::from_secs(1);
const BUSY: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug, Default)]
pub struct Relay {
    is_busy: AtomicBool,
}

#[async_trait]
impl MaintenanceJob for Relay {
    fn name(&self) -> &'static str {
        "relay"
    }

    fn every(&self) -> Duration {
        IDLE
    }

    fn rest(&self) -> Duration {
        if self.is_busy.load(Ordering::Relaxed) {
            BUSY
        } else {
            IDLE
        }
    }

    async fn pass(&self, engine: &Engine) -> Result<Pass, StoreError> {
        let Some(broker) = engine.broker() else {
            return Ok(Pass::Clear);
        };
        if !engine.is_broker_up() {
            return Ok(Pass::Clear);
        }

        let leased = engine.outbox().lease_outbox(BATCH, LEASE_MS).await?;
        self.is_busy.store(!leased.is_empty(), Ordering::Relaxed);
        if leased.is_empty() {
            return Ok(Pass::Clear);
        }

        let messages: Vec<OutboxMessage> =
            leased.iter().map(|leased| leased.message.clone()).collect();
        let outcomes = broker.publish(&messages).await;
        let is_down = outcomes
            .iter()
            .any(|outcome| matches!(outcome, Published::Unknown(_)));
        let done = done_with(&leased, outcomes);
        if !done.is_empty() {
            engine.outbox().confirm_outbox(&done).await?;
        }

        Ok(if is_down {
            Pass::Clear
        } else {
            Pass::after(leased.len(), BATCH)
        })
    }
}

/// The messages that leave the outbox: those that the broker confirmed, and those that it has
/// refused too often.
fn done_with(leased: &[LeasedMessage], outcomes: Vec<Published>) -> Vec<i64> {
    let mut done = Vec::new();
    for (leased, outcome) in leased.iter().zip(outcomes) {
        let task_id = leased.message.task_id;
        match outcome {
            Published::Confirmed => done.push(leased.id),
            Published::Refused(reason) if leased.tries >= MAX_TRIES => {
                tracing::error!(
                    %task_id,
                    reason,
                    tries = MAX_TRIES,
                    "the broker refuses an outbox message; dropping it"
                );
                done.push(leased.id);
            }
            Published::Refused(reason) => {
                tracing::warn!(%task_id, reason, "the broker refused an outbox message; retrying");
            }
            Published::Unknown(_) => {}
        }
    }

    done
}
