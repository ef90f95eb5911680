//! Hints that are published before their task is committed.

use longhaul_domain::{
    Json, NewTask, Timestamp, bounds,
    contract::{broker::Hint, store::TaskCommands as _},
};
use longhaul_testkit::names::queue_name;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_lone_task_is_published_for_ahead_of_its_commit_and_others_after_it() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let client = fleet.client(counted(&runs));
    let submit = async || client.submit::<Counted>(()).await.unwrap().id();
    let ids = [submit().await, submit().await];

    fleet.pass(Duration::from_millis(100)).await;
    let received = fleet.broker.hints("free_default").next(10).await;
    let hints: Vec<_> = received
        .iter()
        .map(|one| (one.hint.task_id, one.hint.lookups))
        .collect();

    assert_eq!(
        hints,
        [(ids[0], bounds::AHEAD_LOOKUPS), (ids[1], 0)],
        "hints that follow each other share a batch"
    );
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_committed_after_its_hint_was_heard_starts() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let node = fleet.node(slots(10), counted(&runs)).await;
    fleet.pass(Duration::from_millis(500)).await;
    let id = fleet.remote.store.next_id();

    fleet.broker.publish_hints(&[ahead(id)]).await;
    fleet
        .remote
        .link
        .wait_for("claim_named", Leg::Answer, 1)
        .await;
    commit(&fleet, id).await;
    fleet.pass(Duration::from_millis(50)).await;
    assert_eq!(fleet.status(id), Status::Completed);
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_never_comes_is_not_looked_for_without_end() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let node = fleet.node(slots(10), counted(&runs)).await;
    fleet.pass(Duration::from_millis(500)).await;
    fleet
        .broker
        .publish_hints(&[ahead(fleet.remote.store.next_id())])
        .await;
    fleet.pass(A_WHILE).await;

    assert_eq!(
        fleet.claims_by_hint(),
        1 + usize::from(bounds::AHEAD_LOOKUPS)
    );
    assert_eq!(
        fleet.broker.depth("free_default").await,
        Ok(0),
        "it was acknowledged"
    );
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_node_gives_away_what_it_looks_for() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let types = |runs: &Counted| {
        let counted = counted(runs);
        move |registry: &mut Registry| {
            counted(registry);
            registry.register(Endless::default()).unwrap();
        }
    };

    let busy = fleet.node(slots(1), types(&runs)).await;
    fleet.pass(Duration::from_millis(500)).await;
    let id = fleet.remote.store.next_id();
    fleet
        .broker
        .publish_hints(&[Hint {
            lookups: u8::MAX,
            ..ahead(id)
        }])
        .await;

    fleet
        .remote
        .link
        .wait_for("claim_named", Leg::Answer, 1)
        .await;
    busy.submit::<Endless>(()).await.unwrap();
    fleet.pass(Duration::from_millis(100)).await;
    assert_eq!(fleet.count(Status::Running), 1, "its only slot is taken");
    let idle = fleet.node(slots(1), counted(&runs)).await;

    fleet.pass(Duration::from_millis(50)).await;
    commit(&fleet, id).await;
    fleet.pass(Duration::from_millis(50)).await;
    assert_eq!(fleet.status(id), Status::Completed);
    idle.stop().await;
    busy.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_claim_or_stops_gives_away_what_it_looks_for() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let node = fleet.node(slots(1), counted(&runs)).await;
    fleet.pass(Duration::from_millis(500)).await;
    fleet
        .broker
        .publish_hints(&[Hint {
            lookups: u8::MAX,
            ..ahead(fleet.remote.store.next_id())
        }])
        .await;

    fleet
        .remote
        .link
        .wait_for("claim_named", Leg::Answer, 1)
        .await;
    assert_eq!(
        fleet.broker.depth("free_default").await,
        Ok(0),
        "the node has it"
    );
    fleet.remote.link.cut(true);
    fleet.pass(Duration::from_millis(50)).await;
    assert_eq!(
        fleet.broker.depth("free_default").await,
        Ok(1),
        "others may claim"
    );

    fleet.remote.link.cut(false);
    let claims = fleet.remote.link.count("claim_named", Leg::Answer);
    fleet
        .remote
        .link
        .wait_for("claim_named", Leg::Answer, claims + 1)
        .await;
    assert_eq!(
        fleet.broker.depth("free_default").await,
        Ok(0),
        "the node has it again"
    );

    node.begin_drain();
    fleet.pass(Duration::from_millis(50)).await;
    assert_eq!(
        fleet.broker.depth("free_default").await,
        Ok(1),
        "others may claim"
    );
    node.stop().await;
}

/// Commits a task without a hint.
async fn commit(fleet: &Fleet, id: TaskId) {
    let parameters = Json::trusted("null".to_owned());
    let task = NewTask {
        id: Some(id),
        ..NewTask::new(
            "default",
            Counted::TYPE,
            queue_name("free_default"),
            parameters,
        )
    };

    let submitted = fleet.remote.store.submit_task(task).await.unwrap();
    assert_eq!(submitted.task_id, id);
}

/// The hint of a task that is not committed yet.
fn ahead(task_id: TaskId) -> Hint {
    Hint {
        task_id,
        owner: "default".to_owned(),
        task_type: Counted::TYPE.to_owned(),
        queue: queue_name("free_default"),
        priority: 1,
        retry_count: 0,
        submitted_at: Timestamp::from_micros(0),
        due_at: Timestamp::from_micros(0),
        lookups: bounds::AHEAD_LOOKUPS,
        correlation_id: None,
        trace_context: None,
    }
}
