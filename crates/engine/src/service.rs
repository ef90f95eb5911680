//! The one skeleton of every background duty.
//!
//! A duty ticks, or is woken. Before each round it takes its lease in the store, so that one node at a time does it;
//! a round is passes of bounded work until nothing is left or the round has had its share of time. Passes are
//! idempotent: their writes are guarded by the rows they decided on, so a duty that lost its lease in the middle
//! does no harm.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::{NodeId, StoreError};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Engine;

/// Passes of one round. A backlog longer than this goes on at the next tick, and others get their turn.
const PASSES: usize = 100;
/// A round that is not over by then waits for a store that has vanished. Long enough for the slowest export.
const LONGEST_ROUND: Duration = Duration::from_secs(600);

/// How long a duty is a node's at the least, in milliseconds. Long enough that one which is slow for once keeps its
/// duties, short enough that nobody waits long for those of a dead one.
const SHORTEST_HOLD_MS: u64 = 3_000;

/// How long after its node's start a duty that is not urgent looks for the first time, at most: a node that starts is wanted for
/// its work, and all of its duties at once would ask the store for as many connections, each with statements of its own.
const FIRST_REST: Duration = Duration::from_secs(1);

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
    /// Whether somebody waits for it when a node starts.
    fn is_urgent(&self) -> bool {
        false
    }
    /// Returns when there is work before the rest is over.
    async fn woken(&self, _engine: &Engine) {
        std::future::pending().await
    }
    /// One bounded piece of work.
    async fn pass(&self, engine: &Engine) -> Result<Pass, StoreError>;
}

/// Runs the duty until `stop`. `jitter`, from 0 to 1, spreads the first looks of many nodes and duties.
pub async fn run(
    engine: Arc<Engine>,
    node: NodeId,
    duty: Arc<dyn Duty>,
    stop: CancellationToken,
    jitter: f64,
) {
    let mut hold = Hold::default();
    let mut rest = match duty.is_urgent() {
        true => Duration::ZERO,
        false => duty
            .every()
            .min(FIRST_REST)
            .mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0),
    };
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = duty.woken(&engine) => {}
            () = tokio::time::sleep(rest) => {}
        }
        match tokio::time::timeout(
            LONGEST_ROUND,
            held_round(&engine, node, &*duty, &stop, &mut hold),
        )
        .await
        {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, duty = duty.name(), "a duty could not do its work and tries again")
            }
            Err(_) => tracing::warn!(
                duty = duty.name(),
                "a duty got no answer for {LONGEST_ROUND:?} and tries again"
            ),
        }
        rest = duty.rest();
    }
}

/// One round: passes until nothing is left or `stop`, if the duty is this node's.
pub async fn round(
    engine: &Engine,
    node: NodeId,
    duty: &dyn Duty,
    stop: &CancellationToken,
) -> Result<(), StoreError> {
    held_round(engine, node, duty, stop, &mut Hold::default()).await
}

/// When a duty's lease was last renewed. One that looks many times a second does not write each time.
#[derive(Debug, Default)]
struct Hold(Option<Instant>);

impl Hold {
    /// Whether the duty is this node's. A lease that is young is not renewed.
    async fn take(
        &mut self,
        engine: &Engine,
        node: NodeId,
        duty: &dyn Duty,
    ) -> Result<bool, StoreError> {
        let ttl_ms = u64::try_from(duty.every().as_millis())
            .unwrap_or(u64::MAX)
            .saturating_mul(3)
            .max(SHORTEST_HOLD_MS);
        if self
            .0
            .is_some_and(|renewed| renewed.elapsed() < Duration::from_millis(ttl_ms / 6))
        {
            return Ok(true);
        }
        let asked = Instant::now();
        self.0 = None;
        let taken = engine.store.take_duty(duty.name(), node, ttl_ms).await?;
        self.0 = taken.map(|_| asked);
        Ok(self.0.is_some())
    }
}

async fn held_round(
    engine: &Engine,
    node: NodeId,
    duty: &dyn Duty,
    stop: &CancellationToken,
    hold: &mut Hold,
) -> Result<(), StoreError> {
    let started = Instant::now();
    for _ in 0..PASSES {
        if stop.is_cancelled() || !hold.take(engine, node, duty).await? {
            return Ok(());
        }
        if duty.pass(engine).await? == Pass::Clear || started.elapsed() > Duration::from_secs(30) {
            return Ok(());
        }
    }
    Ok(())
}
