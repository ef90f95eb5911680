//! Two processes on one broker: what one publishes the other hears.

use std::{sync::Arc, time::Duration};

use futures::poll;
use libtest_mimic::Trial;
use longhaul_domain::{
    Status, TaskId,
    contract::event_bus::{EventBus, EventStream, Heard, Subscription},
    event::{EventKind, TaskEvent},
};
use longhaul_transport::{
    local::MemoryEventBus,
    rabbitmq::{LaneKind, RabbitEventBus},
};

use super::{bare::Bare, fresh::Namespace};
use crate::{fresh::random_id, trial};

pub(crate) fn trials() -> Vec<Trial> {
    let name = |sentence: &str| format!("rabbitmq::news::{sentence}");
    vec![
        trial(
            &name("news_of_one_process_is_heard_in_the_other"),
            news_of_one_process_is_heard_in_the_other,
        ),
        trial(
            &name("a_task_that_only_another_process_listens_to_is_heard"),
            a_task_that_only_another_process_listens_to_is_heard,
        ),
        trial(&name("a_gap_is_told_as_missed"), a_gap_is_told_as_missed),
        trial(
            &name("a_listener_that_came_early_is_told_so"),
            a_listener_that_came_early_is_told_so,
        ),
        trial(
            &name("a_lost_link_is_told_as_missed"),
            a_lost_link_is_told_as_missed,
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
    let broker = namespace.broker(LaneKind::Classic).await;
    let bus = RabbitEventBus::new(&broker, MemoryEventBus::new(4_096));
    bus.listen().await;
    // The bus needs the broker; nobody else here does.
    std::mem::forget(Arc::clone(&broker));
    bus
}

async fn next(stream: &mut Box<dyn EventStream>) -> Heard {
    tokio::time::timeout(Duration::from_secs(60), stream.next())
        .await
        .unwrap()
        .unwrap()
}

async fn a_task_that_only_another_process_listens_to_is_heard() {
    let namespace = Namespace::new();
    let (here, there) = (bus(&namespace).await, bus(&namespace).await);
    let news = event(1);
    let _stream = there.subscribe(Subscription {
        task_id: Some(news.task_id),
        owner: None,
    });
    assert!(here.is_heard(news.task_id, &news.owner));
}

async fn news_of_one_process_is_heard_in_the_other() {
    let namespace = Namespace::new();
    let (here, there) = (bus(&namespace).await, bus(&namespace).await);
    let (mut of_here, mut of_there) = (
        here.subscribe(Subscription::default()),
        there.subscribe(Subscription::default()),
    );
    let events: Vec<_> = (1..=550).map(event).collect();
    events.iter().for_each(|event| here.publish(event.clone()));
    for event in &events {
        assert_eq!(next(&mut of_here).await, Heard::Event(event.clone()));
        assert_eq!(next(&mut of_there).await, Heard::Event(event.clone()));
    }
    // An answer comes back, and nobody has heard anything twice.
    let answer = event(0);
    there.publish(answer.clone());
    assert_eq!(next(&mut of_there).await, Heard::Event(answer.clone()));
    assert_eq!(next(&mut of_here).await, Heard::Event(answer));
    assert!(poll!(of_here.next()).is_pending() && poll!(of_there.next()).is_pending());
}

async fn a_gap_is_told_as_missed() {
    let namespace = Namespace::new();
    let (here, there) = (bus(&namespace).await, bus(&namespace).await);
    let mut stream = there.subscribe(Subscription::default());
    let first = event(1);
    here.publish(first.clone());
    assert_eq!(next(&mut stream).await, Heard::Event(first));
    // More at once than are kept for the others.
    let events: Vec<_> = (0..30_000).map(event).collect();
    events.iter().for_each(|event| here.publish(event.clone()));
    let last = event(7);
    let (mut missed, mut heard) = (0, 0);
    while missed + heard < 30_000 {
        match next(&mut stream).await {
            Heard::Missed(count) => missed += count,
            Heard::Event(_) => heard += 1,
        }
        // A gap is seen with the next message.
        here.publish(last.clone());
        tokio::task::yield_now().await;
        if missed > 0 && heard > 0 {
            break;
        }
    }
    assert!(missed > 0 && heard > 0, "{missed} missed and {heard} heard");
}

async fn a_listener_that_came_early_is_told_so() {
    let namespace = Namespace::new();
    let broker = namespace.connecting(LaneKind::Classic);
    let bus = RabbitEventBus::new(&broker, MemoryEventBus::new(16));
    let mut stream = bus.subscribe(Subscription {
        task_id: Some(TaskId(random_id())),
        owner: None,
    });
    assert_eq!(next(&mut stream).await, Heard::Missed(1));
    bus.listen().await;
    let mut late = bus.subscribe(Subscription::default());
    assert!(poll!(late.next()).is_pending());
}

async fn a_lost_link_is_told_as_missed() {
    let namespace = Namespace::new();
    let broker = namespace.broker(LaneKind::Classic).await;
    let bus = RabbitEventBus::new(&broker, MemoryEventBus::new(16));
    bus.listen().await;
    let mut stream = bus.subscribe(Subscription::default());
    // A lane that is deleted under its consumer ends the link.
    let mut consumer = longhaul_domain::contract::Broker::bells(&*broker, "vip_short");
    let bare = Bare::connect(&namespace).await;
    let lane = namespace.full("vip_short");
    let delete = async {
        bare.until_consumed(&lane).await;
        let options = lapin::options::QueueDeleteOptions::default();
        bare.channel
            .queue_delete(lane.clone().into(), options)
            .await
            .unwrap();
        next(&mut stream).await
    };
    tokio::select! {
        heard = delete => assert_eq!(heard, Heard::Missed(1)),
        _ = consumer.next(1) => panic!("nothing is rung"),
    }
}
