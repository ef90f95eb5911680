//! Two processes on one broker: each receives the events of the other.

use std::{sync::Arc, time::Duration};

use futures::poll;
use libtest_mimic::Trial;
use longhaul_domain::{
    Status, TaskId,
    contract::event_bus::{EventBus, EventStream, Received, Subscription},
    event::{EventKind, TaskEvent},
};
use longhaul_transport::{
    local::MemoryEventBus,
    rabbitmq::{QueueKind, RabbitEventBus},
};

use super::{bare::Bare, fresh::Namespace};
use crate::{fresh::random_id, trial};

pub(crate) fn trials() -> Vec<Trial> {
    let name = |sentence: &str| format!("rabbitmq::remote_events::{sentence}");
    vec![
        trial(
            &name("an_event_of_one_process_reaches_the_other"),
            an_event_of_one_process_reaches_the_other,
        ),
        trial(
            &name("a_task_with_a_listener_in_another_process_has_listeners"),
            a_task_with_a_listener_in_another_process_has_listeners,
        ),
        trial(
            &name("a_gap_is_reported_as_missed"),
            a_gap_is_reported_as_missed,
        ),
        trial(
            &name("a_subscription_before_the_bus_listens_is_reported_as_missed"),
            a_subscription_before_the_bus_listens_is_reported_as_missed,
        ),
        trial(
            &name("a_lost_link_is_reported_as_missed"),
            a_lost_link_is_reported_as_missed,
        ),
    ]
}

pub(crate) fn event(version: u64) -> TaskEvent {
    TaskEvent {
        task_id: TaskId(random_id()),
        owner: "Žofie".to_owned(),
        task_type: "novel.write".to_owned(),
        event: EventKind::Progress,
        status: Status::Running,
        attempt: 1,
        version,
        sequence: version,
        progress: Some(serde_json::json!({"percent": 12.5})),
        error: None,
        correlation_id: None,
    }
}

async fn bus(namespace: &Namespace) -> RabbitEventBus {
    let broker = namespace.broker(QueueKind::Classic).await;
    let bus = RabbitEventBus::new(&broker, MemoryEventBus::new(4_096));
    bus.listen().await;
    // The bus needs the broker until the end of the test.
    std::mem::forget(Arc::clone(&broker));
    bus
}

async fn next(stream: &mut Box<dyn EventStream>) -> Received {
    tokio::time::timeout(Duration::from_secs(60), stream.next())
        .await
        .unwrap()
        .unwrap()
}

async fn a_task_with_a_listener_in_another_process_has_listeners() {
    let namespace = Namespace::new();
    let here = bus(&namespace).await;
    let there = bus(&namespace).await;
    let event = event(1);
    let _stream = there.subscribe(Subscription {
        task_id: Some(event.task_id),
        owner: None,
    });

    assert!(here.has_listeners(event.task_id, &event.owner));
}

async fn an_event_of_one_process_reaches_the_other() {
    let namespace = Namespace::new();
    let here = bus(&namespace).await;
    let there = bus(&namespace).await;
    let mut of_here = here.subscribe(Subscription::default());
    let mut of_there = there.subscribe(Subscription::default());
    let events: Vec<_> = (1..=550).map(event).collect();

    events.iter().for_each(|event| here.publish(event.clone()));
    for event in &events {
        assert_eq!(next(&mut of_here).await, Received::Event(event.clone()));
        assert_eq!(next(&mut of_there).await, Received::Event(event.clone()));
    }

    // An event comes back, and no event arrives twice.
    let answer = event(0);
    there.publish(answer.clone());
    assert_eq!(next(&mut of_there).await, Received::Event(answer.clone()));
    assert_eq!(next(&mut of_here).await, Received::Event(answer));
    assert!(poll!(of_here.next()).is_pending() && poll!(of_there.next()).is_pending());
}

async fn a_gap_is_reported_as_missed() {
    let namespace = Namespace::new();
    let here = bus(&namespace).await;
    let there = bus(&namespace).await;
    let mut stream = there.subscribe(Subscription::default());
    let first = event(1);

    here.publish(first.clone());
    assert_eq!(next(&mut stream).await, Received::Event(first));

    // More at once than are buffered for the others.
    let events: Vec<_> = (0..30_000).map(event).collect();
    events.iter().for_each(|event| here.publish(event.clone()));

    let last = event(7);
    let mut missed = 0;
    let mut received = 0;
    while missed + received < 30_000 {
        match next(&mut stream).await {
            Received::Missed(count) => missed += count,
            Received::Event(_) => received += 1,
        }

        // The next message shows the gap.
        here.publish(last.clone());
        tokio::task::yield_now().await;
        if missed > 0 && received > 0 {
            break;
        }
    }

    assert!(
        missed > 0 && received > 0,
        "{missed} missed and {received} received"
    );
}

async fn a_subscription_before_the_bus_listens_is_reported_as_missed() {
    let namespace = Namespace::new();
    let broker = namespace.connecting(QueueKind::Classic);
    let bus = RabbitEventBus::new(&broker, MemoryEventBus::new(16));
    let mut stream = bus.subscribe(Subscription {
        task_id: Some(TaskId(random_id())),
        owner: None,
    });
    assert_eq!(next(&mut stream).await, Received::Missed(1));
    bus.listen().await;
    let mut late = bus.subscribe(Subscription::default());
    assert!(poll!(late.next()).is_pending());
}

async fn a_lost_link_is_reported_as_missed() {
    let namespace = Namespace::new();
    let broker = namespace.broker(QueueKind::Classic).await;
    let bus = RabbitEventBus::new(&broker, MemoryEventBus::new(16));
    bus.listen().await;
    let mut stream = bus.subscribe(Subscription::default());

    // Deleting a queue under its consumer ends the link.
    let mut consumer = longhaul_domain::contract::Broker::hints(&*broker, "vip_short");
    let bare = Bare::connect(&namespace).await;
    let queue = namespace.full("vip_short");

    let delete = async {
        bare.until_consumed(&queue).await;
        let options = lapin::options::QueueDeleteOptions::default();
        bare.channel
            .queue_delete(queue.clone().into(), options)
            .await
            .unwrap();
        next(&mut stream).await
    };

    tokio::select! {
        received = delete => assert_eq!(received, Received::Missed(1)),
        _ = consumer.next(1) => panic!("nothing is published"),
    }
}
