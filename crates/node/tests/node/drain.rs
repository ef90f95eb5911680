//! Claims and heartbeats that are under way when a node stops.

use std::time::Duration;

use longhaul::{Job, Outcome, Status, TypeSettings};
use longhaul_domain::contract::store::Leases as _;

use crate::{
    remote_store::{Counted, RemoteStore},
    store_link::Leg,
};

async fn idle(_: (), _: Job) -> Outcome<()> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_a_claim_under_way_brings_is_handed_back_and_nothing_more_is_claimed() {
    let remote = RemoteStore::new();
    let counted = Counted::default();
    let builder = remote.builder().register(counted.clone());

    // Each has its own limit and is claimed by itself.
    let builder = builder.register_fn("idle", TypeSettings::new().concurrency(1), idle);
    let longhaul = builder.start().await.unwrap();
    remote.pass(Duration::from_secs(1)).await;
    remote.link.hold("claim_tasks", Leg::Answer);

    // With a key, so that the submit leaves the claim to the worker.
    let handle = longhaul
        .submit::<Counted>(())
        .idempotency_key("k")
        .await
        .unwrap();
    let id = handle.id();
    let store = &remote.store;
    while store.look(|tasks, _| tasks[&id].status) != Status::Running {
        remote.pass(Duration::from_millis(50)).await;
    }

    let claims = remote.link.count("claim_tasks", Leg::Request);
    let stopped = tokio::spawn(longhaul.stop());
    remote.pass(Duration::from_secs(1)).await;
    remote.link.free("claim_tasks", Leg::Answer);
    stopped.await.unwrap();
    let (status, crashes) = store.look(|tasks, _| (tasks[&id].status, tasks[&id].crash_count));

    assert_eq!((status, crashes, counted.runs()), (Status::Queued, 0, 0));
    assert_eq!(remote.link.count("claim_tasks", Leg::Request), claims);
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_under_way_leaves_no_ghost_behind() {
    let remote = RemoteStore::new();
    let longhaul = remote.builder().start().await.unwrap();
    remote.link.hold("heartbeat_node", Leg::Request);
    remote
        .link
        .wait_for("heartbeat_node", Leg::Request, 1)
        .await;
    let stopped = tokio::spawn(longhaul.stop());

    remote.pass(Duration::from_secs(1)).await;
    remote.link.free("heartbeat_node", Leg::Request);
    stopped.await.unwrap();
    assert_eq!(remote.store.list_nodes().await.unwrap(), []);
}
