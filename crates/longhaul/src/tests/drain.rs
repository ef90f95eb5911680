//! What is under way when a node is told to stop.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::{NodeId, contract::store::Leases};
use longhaul_engine::Engine;
use longhaul_node::maintenance::job::{self, MaintenanceJob, Pass};
use tokio_util::sync::CancellationToken;

use super::{Counted, Far, line::Way};
use crate::{Job, Outcome, Status, StoreError, TypeSettings};

async fn idle(_: (), _: Job) -> Outcome<()> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_a_claim_under_way_brings_is_handed_back_and_nothing_more_is_claimed() {
    let far = Far::new();
    let counted = Counted::default();
    let builder = far.builder().register(counted.clone());

    // Each has a limit of its own and is asked for by itself.
    let builder = builder.register_fn("idle", TypeSettings::new().concurrency(1), idle);
    let longhaul = builder.start().await.unwrap();
    far.pass(Duration::from_secs(1)).await;
    far.line.hold("claim_tasks", Way::Back);

    // With a key, so that the submit leaves the claim to the worker.
    let handle = longhaul
        .submit::<Counted>(())
        .idempotency_key("k")
        .await
        .unwrap();
    let id = handle.id();
    let store = &far.store;
    while store.look(|tasks, _| tasks[&id].status) != Status::Running {
        far.pass(Duration::from_millis(50)).await;
    }

    let claims = far.line.count("claim_tasks", Way::There);
    let stopped = tokio::spawn(longhaul.stop());
    far.pass(Duration::from_secs(1)).await;
    far.line.free("claim_tasks", Way::Back);
    stopped.await.unwrap();
    let (status, crashes) = store.look(|tasks, _| (tasks[&id].status, tasks[&id].crash_count));

    assert_eq!(
        (status, crashes, counted.0.load(Ordering::SeqCst)),
        (Status::Queued, 0, 0)
    );
    assert_eq!(far.line.count("claim_tasks", Way::There), claims);
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_under_way_leaves_no_ghost_behind() {
    let far = Far::new();
    let longhaul = far.builder().start().await.unwrap();
    far.line.hold("heartbeat_node", Way::There);
    far.line.comes_by("heartbeat_node", Way::There, 1).await;
    let stopped = tokio::spawn(longhaul.stop());

    far.pass(Duration::from_secs(1)).await;
    far.line.free("heartbeat_node", Way::There);
    stopped.await.unwrap();
    assert_eq!(far.store.list_nodes().await.unwrap(), []);
}

/// Never comes to an end, and is told to stop in its second pass.
#[derive(Debug, Default)]
struct Endless {
    passes: AtomicUsize,
    stop: CancellationToken,
}

#[async_trait]
impl MaintenanceJob for Endless {
    fn name(&self) -> &'static str {
        "endless"
    }

    fn every(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn pass(&self, _engine: &Engine) -> Result<Pass, StoreError> {
        if self.passes.fetch_add(1, Ordering::SeqCst) == 1 {
            self.stop.cancel();
        }
        Ok(Pass::More)
    }
}

#[tokio::test]
async fn a_duty_stops_between_two_passes() {
    let longhaul = Far::new().builder().without_worker().unwrap();
    let job = Endless::default();
    job::round(
        longhaul.engine(),
        NodeId(uuid::Uuid::nil()),
        &job,
        &job.stop,
    )
    .await
    .unwrap();
    assert_eq!(job.passes.load(Ordering::SeqCst), 2);
}
