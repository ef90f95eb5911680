//! When a silent node counts as dead, and how often a live one beats.

use std::time::Duration;

use longhaul::{Context, MaintenanceSettings, Outcome, Status, Stop, Task};
use longhaul_domain::{NodeId, NodeRecord, contract::store::Leases};

use crate::{remote_store::RemoteStore, store_link::Leg};

const LEASE: Duration = Duration::from_secs(30);

impl RemoteStore {
    async fn nodes(&self) -> Vec<NodeRecord> {
        self.store.list_nodes().await.unwrap()
    }

    async fn is_lost(&self, id: NodeId) -> bool {
        self.nodes()
            .await
            .iter()
            .any(|node| node.id == id && node.lost_at.is_some())
    }
}

#[tokio::test(start_paused = true)]
async fn after_an_outage_nobody_is_declared_dead_before_everybody_could_beat() {
    let remote = RemoteStore::new();
    let longhaul = remote.builder().start().await.unwrap();
    remote.pass(LEASE).await;
    let this = remote.nodes().await[0].id;
    let other = NodeId(uuid::Uuid::from_u128(1));

    remote
        .store
        .register_node(other, "other", "host", None)
        .await
        .unwrap();
    remote.link.cut(true);
    remote.pass(LEASE * 2).await;

    // The rescuer reaches the store before the heartbeat does.
    remote.link.hold("heartbeat_node", Leg::Request);
    remote.link.cut(false);
    let rescues = remote.link.count("rescue_tasks", Leg::Answer);
    remote.pass(LEASE).await;
    assert!(
        remote.link.count("rescue_tasks", Leg::Answer) > rescues,
        "the rescuer has run"
    );

    assert_eq!(
        (remote.is_lost(this).await, remote.is_lost(other).await),
        (false, false)
    );

    // After this node's heartbeat the others have half a lease.
    remote.link.free("heartbeat_node", Leg::Request);
    remote.pass(LEASE / 3).await;
    assert_eq!(
        (remote.is_lost(this).await, remote.is_lost(other).await),
        (false, false)
    );
    remote.pass(LEASE).await;
    assert_eq!(
        (remote.is_lost(this).await, remote.is_lost(other).await),
        (false, true)
    );

    longhaul.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_with_a_short_lease_beats_often_enough() {
    let remote = RemoteStore::new();
    let lease = Duration::from_millis(900);
    let maintenance = MaintenanceSettings {
        lease,
        rescue_every: Duration::from_millis(50),
        ..MaintenanceSettings::default()
    };
    let longhaul = remote
        .builder()
        .maintenance(maintenance)
        .start()
        .await
        .unwrap();

    remote.pass(lease * 10).await;
    assert!(
        remote
            .nodes()
            .await
            .iter()
            .all(|node| node.lost_at.is_none()),
        "{:?}",
        remote.nodes().await
    );
    longhaul.stop().await;
}

/// Runs until the node stops.
struct Endless;

impl Task for Endless {
    const TYPE: &'static str = "endless";
    type Params = ();
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        ctx.cancelled().await;
        Err(Stop::cancelled())
    }
}

/// How often a node beats in 20 s with nothing in flight, and then while these tasks run.
async fn beats_while_running(tasks: usize) -> (usize, usize) {
    let remote = RemoteStore::new();
    let longhaul = remote.builder().register(Endless).start().await.unwrap();
    let beats = || remote.link.count("heartbeat_node", Leg::Answer);
    remote.pass(Duration::from_secs(20)).await;
    let idle = beats();
    let handles = longhaul
        .submit_all((0..tasks).map(|_| longhaul.submit::<Endless>(())))
        .await
        .unwrap();

    remote.pass(Duration::from_secs(20)).await;
    let busy = beats() - idle;
    for handle in handles {
        assert_eq!(handle.status().await.unwrap(), Status::Running);
    }

    longhaul.stop().await;
    (idle, busy)
}

#[tokio::test(start_paused = true)]
async fn a_node_beats_more_often_while_it_has_something_in_hand() {
    let (idle, busy) = beats_while_running(1).await;
    assert!((3..=5).contains(&idle), "{idle} beats while nothing ran");
    assert!((18..=21).contains(&busy), "{busy} beats while a task ran");
}

#[tokio::test(start_paused = true)]
async fn one_beat_is_for_all_tasks_of_the_node() {
    let (_, busy) = beats_while_running(50).await;
    assert!((18..=21).contains(&busy), "{busy} beats while 50 tasks ran");
}
