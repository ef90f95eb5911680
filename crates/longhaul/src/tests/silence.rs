//! Who counts as dead after a silence.

use std::time::Duration;

use longhaul_domain::{NodeId, NodeRecord, contract::store::Leases};

use super::{Far, line::Way};
use crate::{Context, MaintenanceSettings, Outcome, Status, Stop, Task};

const LEASE: Duration = Duration::from_secs(30);

impl Far {
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
    let far = Far::new();
    let longhaul = far.builder().start().await.unwrap();
    far.pass(LEASE).await;
    let this = far.nodes().await[0].id;
    let other = NodeId(uuid::Uuid::from_u128(1));

    far.store
        .register_node(other, "other", "host", None)
        .await
        .unwrap();
    far.line.cut(true);
    far.pass(LEASE * 2).await;

    // The rescuer is back before the heart.
    far.line.hold("heartbeat_node", Way::There);
    far.line.cut(false);
    let looks = far.line.count("rescue_tasks", Way::Back);
    far.pass(LEASE).await;
    assert!(
        far.line.count("rescue_tasks", Way::Back) > looks,
        "the rescuer has looked"
    );

    assert_eq!(
        (far.is_lost(this).await, far.is_lost(other).await),
        (false, false)
    );

    // Once the heart has beaten, the others have half a lease.
    far.line.free("heartbeat_node", Way::There);
    far.pass(LEASE / 3).await;
    assert_eq!(
        (far.is_lost(this).await, far.is_lost(other).await),
        (false, false)
    );
    far.pass(LEASE).await;
    assert_eq!(
        (far.is_lost(this).await, far.is_lost(other).await),
        (false, true)
    );

    longhaul.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_with_a_short_lease_beats_often_enough() {
    let far = Far::new();
    let lease = Duration::from_millis(900);
    let maintenance = MaintenanceSettings {
        lease,
        rescue_every: Duration::from_millis(50),
        ..MaintenanceSettings::default()
    };
    let longhaul = far
        .builder()
        .maintenance(maintenance)
        .start()
        .await
        .unwrap();

    far.pass(lease * 10).await;
    assert!(
        far.nodes().await.iter().all(|node| node.lost_at.is_none()),
        "{:?}",
        far.nodes().await
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

/// How often a node beats in 20 s without anything in hand, and then while so many tasks run.
async fn beats_while_running(tasks: usize) -> (usize, usize) {
    let far = Far::new();
    let longhaul = far.builder().register(Endless).start().await.unwrap();
    let beats = || far.line.count("heartbeat_node", Way::Back);
    far.pass(Duration::from_secs(20)).await;
    let idle = beats();
    let handles = longhaul
        .submit_all((0..tasks).map(|_| longhaul.submit::<Endless>(())))
        .await
        .unwrap();

    far.pass(Duration::from_secs(20)).await;
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
