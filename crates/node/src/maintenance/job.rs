//! The one skeleton of every background job.
//!
//! A job runs a round when its rest is over or when it is woken. Before each pass of a round it
//! takes its lease in the store, so that one node at a time does it. A round is passes of bounded
//! work until nothing is left or its time is up. Passes are idempotent: each write is guarded by
//! the rows that it was decided on, so a job that loses its lease in the middle does no harm.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::{NodeId, StoreError};
use longhaul_engine::Engine;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// Passes of one round. A longer backlog continues in the next round.
const PASSES: usize = 100;
/// A round starts no further pass after this long.
const ROUND: Duration = Duration::from_secs(30);
/// A round that takes longer waits for a store that no longer answers, and is given up. Long enough
/// for the slowest export.
const LONGEST_ROUND: Duration = Duration::from_secs(600);

/// The shortest lease of a job, in milliseconds. Long enough that a node which is slow for once
/// keeps its jobs; short enough that those of a dead node move on soon.
const SHORTEST_LEASE_MS: u64 = 3_000;

/// The longest rest of a job before its first round, unless it is urgent. A node that starts should
/// work first; all jobs at once would need as many connections to the store.
const FIRST_REST: Duration = Duration::from_secs(1);

/// What a pass found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Nothing is left to do now.
    Clear,
    /// There may be more.
    More,
}

impl Pass {
    /// `More` after a pass that was as large as it may be.
    pub(crate) const fn after(done: usize, limit: usize) -> Self {
        if done >= limit {
            Self::More
        } else {
            Self::Clear
        }
    }
}

/// One background job.
#[async_trait]
pub trait MaintenanceJob: Send + Sync + std::fmt::Debug {
    /// The name of its lease in the store.
    fn name(&self) -> &'static str;
    /// The usual time between two rounds.
    fn every(&self) -> Duration;
    /// The rest before the next round: the usual one, unless the job knows of work.
    fn rest(&self) -> Duration {
        self.every()
    }
    /// Whether its first round starts at once.
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

/// Runs the job until `stop`. `jitter`, from 0 to 1, spreads the first rounds of many nodes and
/// jobs.
pub async fn run(
    engine: Arc<Engine>,
    node: NodeId,
    job: Arc<dyn MaintenanceJob>,
    stop: CancellationToken,
    jitter: f64,
) {
    let mut lease = JobLease::default();
    let mut rest = first_rest(&*job, jitter);

    loop {
        // A stop ends the job here, between two rounds; a round that has started ends early by
        // itself.
        tokio::select! {
            () = stop.cancelled() => return,
            () = job.woken(&engine) => {}
            () = tokio::time::sleep(rest) => {}
        }

        let round = leased_round(&engine, node, &*job, &stop, &mut lease);
        match timeout(LONGEST_ROUND, round).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(%error, job = job.name(), "maintenance job failed; retrying");
            }
            Err(_) => tracing::warn!(
                job = job.name(),
                "maintenance job got no answer for {LONGEST_ROUND:?}; retrying"
            ),
        }

        rest = job.rest();
    }
}

/// One round: passes until nothing is left or `stop`, if this node gets the lease.
pub async fn round(
    engine: &Engine,
    node: NodeId,
    job: &dyn MaintenanceJob,
    stop: &CancellationToken,
) -> Result<(), StoreError> {
    leased_round(engine, node, job, stop, &mut JobLease::default()).await
}

fn first_rest(job: &dyn MaintenanceJob, jitter: f64) -> Duration {
    if job.is_urgent() {
        return Duration::ZERO;
    }

    let longest = job.every().min(FIRST_REST);
    longest.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
}

async fn leased_round(
    engine: &Engine,
    node: NodeId,
    job: &dyn MaintenanceJob,
    stop: &CancellationToken,
    lease: &mut JobLease,
) -> Result<(), StoreError> {
    let started = Instant::now();
    for _ in 0..PASSES {
        if stop.is_cancelled() || !lease.take(engine, node, job).await? {
            return Ok(());
        }
        if job.pass(engine).await? == Pass::Clear || started.elapsed() > ROUND {
            return Ok(());
        }
    }

    Ok(())
}

/// When the lease of a job was last renewed by this node. A job that runs many times a second does
/// not write each time.
#[derive(Debug, Default)]
struct JobLease {
    renewed_at: Option<Instant>,
}

impl JobLease {
    /// Takes or renews the lease. Returns whether this node has it. A young lease is not renewed.
    async fn take(
        &mut self,
        engine: &Engine,
        node: NodeId,
        job: &dyn MaintenanceJob,
    ) -> Result<bool, StoreError> {
        let ttl_ms = lease_ms(job);
        let renew_after = Duration::from_millis(ttl_ms / 6);
        if self
            .renewed_at
            .is_some_and(|renewed| renewed.elapsed() < renew_after)
        {
            return Ok(true);
        }

        // The lease counts from before the request, and from nothing if that fails.
        let asked_at = Instant::now();
        self.renewed_at = None;
        let lease = engine
            .maintenance()
            .take_maintenance_lease(job.name(), node, ttl_ms)
            .await?;

        self.renewed_at = lease.map(|_| asked_at);
        Ok(self.renewed_at.is_some())
    }
}

fn lease_ms(job: &dyn MaintenanceJob) -> u64 {
    let every_ms = u64::try_from(job.every().as_millis()).unwrap_or(u64::MAX);
    every_ms.saturating_mul(3).max(SHORTEST_LEASE_MS)
}
