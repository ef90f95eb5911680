//! Signals between nodes, messages of the outbox, and the metrics of both.

use longhaul_domain::{contract::store::Outbox as _, event::Topic};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_cancel_of_another_process_is_heard_at_once() {
    let fleet = Fleet::new();
    let notified = Arc::new(Notify::new());
    let types =
        |registry: &mut Registry| registry.register(Endless(Arc::clone(&notified))).unwrap();
    let client = fleet.client(types);
    let minute = Duration::from_secs(60);

    // No heartbeat comes in the time of this test.
    let settings = WorkerSettings {
        heartbeat: minute,
        idle_heartbeat: minute,
        maintenance: false,
        ..slots(1)
    };

    let node = fleet.node(settings, types).await;
    let handle = client.submit::<Endless>(()).await.unwrap();
    notified.notified().await;
    client.cancel(handle.id()).await.unwrap();
    tokio::time::timeout(Duration::from_secs(2), notified.notified())
        .await
        .unwrap();
    node.stop().await;
}

/// Never succeeds.
struct Doomed;

impl Task for Doomed {
    const TYPE: &'static str = "doomed";
    type Params = ();
    type Output = ();

    async fn run(&self, _ctx: Context<Self>) -> Outcome<()> {
        Err(Stop::fatal("no"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_is_told_once_the_broker_is_there_to_hear_it() {
    let fleet = Fleet::with(OutboxPolicy {
        dead_letters: true,
        ..OutboxPolicy::default()
    });
    let node = fleet
        .node(slots(1), |registry| registry.register(Doomed).unwrap())
        .await;

    fleet.broker.set_down("gone");
    let handle = node.submit::<Doomed>(()).await.unwrap();
    fleet.until(handle.id(), Status::Failed).await;
    fleet.pass(A_WHILE).await;
    assert_eq!(fleet.broker.messages(), []);
    fleet.broker.set_up();
    fleet.pass(A_WHILE).await;
    let published: Vec<(Topic, TaskId)> = fleet
        .broker
        .messages()
        .iter()
        .map(|message| (message.topic, message.task_id))
        .collect();

    assert_eq!(published, [(Topic::DeadLetter, handle.id())]);
    assert_eq!(fleet.remote.store.count_outbox(10).await, Ok(0));
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_goes_over_the_broker_is_measured() {
    let fleet = Fleet::new();
    let runs = Counted::default();
    let client = fleet.client(counted(&runs));
    let node = fleet.node(slots(10), counted(&runs)).await;
    fleet.pass(Duration::from_millis(500)).await;
    client
        .submit_all((0..7).map(|_| client.submit::<Counted>(())))
        .await
        .unwrap();

    fleet.pass(A_WHILE).await;
    let text = node.metrics().await;
    for line in [
        "broker_up 1",
        "broker_messages_acked_total{queue=\"tasks.free_default\"} 7",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }

    fleet.broker.set_down("gone");
    assert!(node.metrics().await.contains("broker_up 0"));
    node.stop().await;
}
