//! The one skeleton of every background duty.
//!
//! A duty ticks, or is woken. Before each round it takes its lease in the store, so that one node at a time does it;
//! a round is passes of bounded work until nothing is left or the round has had its share of time. Passes are
//! idempotent: their writes are guarded by the rows they decided on, so a duty that lost its lease in the middle
//! does no harm.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use longhaul_domain::{NodeId, StoreError};
use tokio_util::sync::CancellationToken;

use crate::Engine;

/// Passes of one round. A backlog longer than this goes on at the next tick, and others get their turn.
const PASSES: usize = 100;
/// A round that is not over by then waits for a store that has vanished. Long enough for the slowest export.
const LONGEST_ROUND: Duration = Duration::from_secs(600);

/// What a pass found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Nothing is left to do now.
    Clear,
    /// There may be more.
    More,
}

/// One background duty.
#[async_trait]
pub trait Duty: Send + Sync + std::fmt::Debug {
    /// Its name in the store's table of duties.
    fn name(&self) -> &'static str;
    /// How often it looks when nobody wakes it.
    fn every(&self) -> Duration;
    /// How long it rests now: as long as ever, unless it knows of work.
    fn rest(&self) -> Duration {
        self.every()
    }
    /// One bounded piece of work.
    async fn pass(&self, engine: &Engine) -> Result<Pass, StoreError>;
}

/// Runs the duty until `stop`.
pub async fn run(engine: Arc<Engine>, node: NodeId, duty: Arc<dyn Duty>, stop: CancellationToken) {
    loop {
        match tokio::time::timeout(LONGEST_ROUND, round(&engine, node, &*duty, &stop)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, duty = duty.name(), "a duty could not do its work and tries again")
            }
            Err(_) => tracing::warn!(duty = duty.name(), "a duty got no answer for {LONGEST_ROUND:?} and tries again"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(duty.rest()) => {}
        }
    }
}

/// One round: passes until nothing is left or `stop`, if the duty is this node's.
pub async fn round(engine: &Engine, node: NodeId, duty: &dyn Duty, stop: &CancellationToken) -> Result<(), StoreError> {
    // Long enough that a node which is slow for once keeps its duties, short enough that a dead one's are taken over.
    let ttl_ms = u64::try_from(duty.every().as_millis()).unwrap_or(u64::MAX).saturating_mul(3).max(5_000);
    let started = Instant::now();
    for _ in 0..PASSES {
        if stop.is_cancelled() || engine.store.take_duty(duty.name(), node, ttl_ms).await?.is_none() {
            return Ok(());
        }
        if duty.pass(engine).await? == Pass::Clear || started.elapsed() > Duration::from_secs(30) {
            return Ok(());
        }
    }
    Ok(())
}
