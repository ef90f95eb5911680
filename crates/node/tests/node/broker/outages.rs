//! A broker that is down, loses or refuses hints, and nodes that stop.

use super::*;

#[tokio::test(start_paused = true)]
async fn while_the_broker_is_down_nodes_look_into_the_store() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let client = fleet.client(counted(&runs));
    let node = fleet.node(slots(10), counted(&runs)).await;
    fleet.pass(Duration::from_millis(500)).await;
    fleet.broker.set_down("gone");

    for round in 1..=5 {
        let handle = client.submit::<Counted>(()).await.unwrap();
        fleet.pass(Duration::from_millis(1_500)).await;
        assert_eq!(
            (fleet.status(handle.id()), runs.runs()),
            (Status::Completed, round)
        );
    }

    assert_eq!(fleet.claims_by_hint(), 0);
    fleet.broker.set_up();
    fleet.pass(Duration::from_millis(500)).await;
    let handle = client.submit::<Counted>(()).await.unwrap();
    fleet.pass(Duration::from_millis(100)).await;
    assert_eq!(
        (fleet.status(handle.id()), fleet.claims_by_hint()),
        (Status::Completed, 1)
    );

    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_lost_everything_costs_time_and_nothing_else() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let client = fleet.client(counted(&runs));
    let maintenance = fleet.node(slots(0), no_types).await;
    client
        .submit_all((0..500).map(|_| client.submit::<Counted>(())))
        .await
        .unwrap();
    fleet.pass(A_WHILE).await;

    assert!(fleet.broker.depth("free_default").await.unwrap() > 0);
    fleet.broker.wipe();

    // Its one poll of the store comes too early to help.
    let settings = WorkerSettings {
        maintenance: false,
        ..slots(10)
    };
    let node = fleet.node(settings, counted(&runs)).await;

    while runs.runs() < 500 {
        fleet.pass(Duration::from_millis(50)).await;
    }

    fleet.pass(A_WHILE).await;
    assert_eq!((runs.runs(), fleet.count(Status::Completed)), (500, 500));
    node.stop().await;
    maintenance.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_the_broker_never_takes_fails_with_the_reason() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let client = fleet.client(counted(&runs));
    let maintenance = fleet.node(slots(0), no_types).await;
    fleet.broker.refuse_next(usize::MAX);
    let handle = client.submit::<Counted>(()).await.unwrap();

    fleet.until(handle.id(), Status::Failed).await;
    let task = client.task(handle.id()).await.unwrap();
    let message = task.error.unwrap().message;
    assert!(
        message.starts_with("could not be dispatched: "),
        "{message}"
    );
    maintenance.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_sends_the_hints_back() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let client = fleet.client(counted(&runs));
    let node = fleet.node(slots(10), counted(&runs)).await;
    fleet.pass(Duration::from_millis(500)).await;
    let handle = client.submit::<Counted>(()).await.unwrap();

    fleet.remote.link.cut(true);
    fleet.pass(Duration::from_secs(1)).await;
    assert_eq!(
        (fleet.status(handle.id()), runs.runs()),
        (Status::Queued, 0)
    );
    fleet.remote.link.cut(false);
    fleet.pass(Duration::from_secs(2)).await;
    assert_eq!(
        (fleet.status(handle.id()), runs.runs()),
        (Status::Completed, 1)
    );

    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_drains_leaves_the_hints_to_others_and_loses_nothing() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let client = fleet.client(counted(&runs));
    let first = fleet.node(slots(5), counted(&runs)).await;
    fleet.pass(Duration::from_millis(500)).await;
    fleet.remote.link.hold("claim_named", Leg::Answer);
    client
        .submit_all((0..20).map(|_| client.submit::<Counted>(())))
        .await
        .unwrap();

    fleet
        .remote
        .link
        .wait_for("claim_named", Leg::Answer, 1)
        .await;
    let stopped = tokio::spawn(first.stop());
    fleet.pass(Duration::from_millis(200)).await;
    fleet.remote.link.free("claim_named", Leg::Answer);
    stopped.await.unwrap();
    assert_eq!(
        (runs.runs(), fleet.count(Status::Queued)),
        (0, 20),
        "what was claimed is handed back"
    );

    let second = fleet.node(slots(5), counted(&runs)).await;
    fleet.pass(Duration::from_secs(12)).await;
    assert_eq!((runs.runs(), fleet.count(Status::Completed)), (20, 20));
    let crashes = fleet
        .remote
        .store
        .look(|tasks, _| tasks.values().map(|task| task.crash_count).sum::<u32>());

    assert_eq!(crashes, 0);
    second.stop().await;
}
