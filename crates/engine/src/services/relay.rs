//! The relay: brings messages that were committed with a change to the broker (R18, R35).
//!
//! A message is removed when the broker has confirmed it, never before: a relay that dies in between sends it twice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::{StoreError, contract::broker::Published, event::OutboxMessage};

use crate::{
    Engine,
    service::{Duty, Pass},
};

/// Messages of one pass.
const BATCH: usize = 500;
/// How long a message is this relay's: longer than any broker is waited for. One that was not taken is sent again then.
const HELD_MS: u64 = 30_000;
/// How often a message is sent that the broker refuses: for about ten minutes.
const TRIES: u32 = 20;
const IDLE: Duration = Duration::from_secs(1);
const BUSY: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug, Default)]
pub struct Relay {
    is_busy: AtomicBool,
}

#[async_trait]
impl Duty for Relay {
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
        let Some(broker) = engine.broker.as_ref().filter(|_| engine.is_broker_up()) else {
            return Ok(Pass::Clear);
        };
        let leased = engine.store.lease_outbox(BATCH, HELD_MS).await?;
        self.is_busy.store(!leased.is_empty(), Ordering::Relaxed);
        if leased.is_empty() {
            return Ok(Pass::Clear);
        }
        let messages: Vec<OutboxMessage> =
            leased.iter().map(|leased| leased.message.clone()).collect();
        let (mut done, mut is_away) = (Vec::new(), false);
        for (leased, published) in leased.iter().zip(broker.publish(&messages).await) {
            match published {
                Published::Confirmed => done.push(leased.id),
                Published::Refused(reason) if leased.tries >= TRIES => {
                    let task_id = leased.message.task_id;
                    tracing::error!(reason, %task_id, tries = TRIES, "a message is dropped that the broker refuses");
                    done.push(leased.id);
                }
                Published::Refused(reason) => {
                    tracing::warn!(reason, "the broker refused a message, for now")
                }
                Published::Unknown(_) => is_away = true,
            }
        }
        if !done.is_empty() {
            engine.store.confirm_outbox(&done).await?;
        }
        Ok(if leased.len() == BATCH && !is_away {
            Pass::More
        } else {
            Pass::Clear
        })
    }
}
