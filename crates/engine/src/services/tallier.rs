//! The tallier: what transactions appended to the counts is folded into their sums (R46).

use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::{StoreError, bounds::MAINTENANCE_BATCH};

use crate::{
    Engine,
    service::{Duty, Pass},
};

#[derive(Debug)]
pub struct Tallier;

#[async_trait]
impl Duty for Tallier {
    fn name(&self) -> &'static str {
        "tallier"
    }

    fn every(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn pass(&self, engine: &Engine) -> Result<Pass, StoreError> {
        let folded = engine.store.fold_tallies(MAINTENANCE_BATCH).await?;
        Ok(if folded >= MAINTENANCE_BATCH {
            Pass::More
        } else {
            Pass::Clear
        })
    }
}
