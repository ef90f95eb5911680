//! The conformance suite of the event bus contract.

use futures::poll;
use libtest_mimic::Trial;
use longhaul_domain::{
    Status, TaskId,
    contract::event_bus::{EventBus, EventStream, Received, Subscription},
    event::{EventKind, TaskEvent},
};

use crate::suite::{self, Case, Factory, cases, random_task_id, within_deadline};

/// Makes a bus whose listeners may fall behind by about this many events.
pub type EventBusFactory = Factory<usize, dyn EventBus>;

/// One trial for each case, named `{backend}::event_bus::{sentence}`.
pub fn trials(backend: &str, factory: &EventBusFactory) -> Vec<Trial> {
    suite::trials(backend, "event_bus", factory, cases())
}

fn cases() -> Vec<Case<EventBusFactory>> {
    cases![
        a_listener_receives_events_in_order,
        a_listener_receives_only_what_is_sent_after_it_subscribed,
        a_listener_receives_only_the_task_of_its_subscription,
        a_listener_receives_only_the_owner_of_its_subscription,
        every_listener_receives_every_event,
        an_event_is_delivered_as_it_was_published,
        a_bus_knows_whether_a_task_has_listeners,
        publishing_without_listeners_is_harmless,
        a_dropped_listener_is_harmless,
        a_cancelled_wait_for_events_loses_nothing,
        a_slow_listener_learns_how_many_events_it_missed,
        a_listener_that_caught_up_misses_no_more_events,
        a_closed_bus_delivers_the_rest_and_ends_its_streams,
    ]
}

const CAPACITY: usize = 1_024;

fn event(task_id: TaskId, owner: &str, version: u64) -> TaskEvent {
    TaskEvent {
        task_id,
        owner: owner.to_owned(),
        task_type: "novel.write".to_owned(),
        event: EventKind::Progress,
        status: Status::Running,
        attempt: 1,
        version,
        sequence: version,
        progress: Some(serde_json::json!({"percent": version})),
        error: None,
        correlation_id: Some("request 7".to_owned()),
    }
}

/// Events of one task with different versions.
fn numbered(versions: std::ops::RangeInclusive<u64>) -> Vec<TaskEvent> {
    let task = random_task_id();
    versions
        .map(|version| event(task, "ann", version))
        .collect()
}

async fn next_event(stream: &mut Box<dyn EventStream>) -> TaskEvent {
    match within_deadline(stream.next()).await {
        Some(Received::Event(event)) => event,
        other => panic!("expected an event, received {other:?}"),
    }
}

async fn assert_receives(stream: &mut Box<dyn EventStream>, events: &[TaskEvent]) {
    for event in events {
        assert_eq!(next_event(stream).await, *event);
    }
}

async fn a_listener_receives_events_in_order(make: EventBusFactory) {
    let bus = make(CAPACITY).await;
    let mut stream = bus.subscribe(Subscription::default());
    let events = numbered(1..=500);
    events.iter().for_each(|event| bus.publish(event.clone()));
    assert_receives(&mut stream, &events).await;
}

async fn a_listener_receives_only_what_is_sent_after_it_subscribed(make: EventBusFactory) {
    let bus = make(CAPACITY).await;
    let events = numbered(1..=2);

    // An earlier listener receives the first event, so that it is over on every bus.
    let mut early = bus.subscribe(Subscription::default());
    bus.publish(events[0].clone());
    assert_receives(&mut early, &events[..1]).await;

    let mut late = bus.subscribe(Subscription::default());
    bus.publish(events[1].clone());
    assert_receives(&mut late, &events[1..]).await;
}

async fn a_listener_receives_only_the_task_of_its_subscription(make: EventBusFactory) {
    let bus = make(CAPACITY).await;
    let wanted = numbered(1..=50);
    let other = numbered(1..=50);
    let subscription = Subscription {
        task_id: Some(wanted[0].task_id),
        owner: None,
    };
    let mut stream = bus.subscribe(subscription);

    for (wanted, other) in wanted.iter().zip(&other) {
        bus.publish(other.clone());
        bus.publish(wanted.clone());
    }

    assert_receives(&mut stream, &wanted).await;
}

async fn a_listener_receives_only_the_owner_of_its_subscription(make: EventBusFactory) {
    let bus = make(CAPACITY).await;
    let first = random_task_id();
    let second = random_task_id();
    let mut of_ann = bus.subscribe(Subscription {
        task_id: None,
        owner: Some("ann".to_owned()),
    });
    let mut of_both = bus.subscribe(Subscription {
        task_id: Some(second),
        owner: Some("ann".to_owned()),
    });
    let published = [
        (first, "ann"),
        (first, "bob"),
        (second, "bob"),
        (second, "ann"),
        (first, "Ann"),
    ];
    for (version, (task, owner)) in published.into_iter().enumerate() {
        bus.publish(event(task, owner, version as u64));
    }
    bus.publish(event(second, "ann", 99));

    assert_receives(
        &mut of_ann,
        &[
            event(first, "ann", 0),
            event(second, "ann", 3),
            event(second, "ann", 99),
        ],
    )
    .await;
    assert_receives(
        &mut of_both,
        &[event(second, "ann", 3), event(second, "ann", 99)],
    )
    .await;
}

async fn every_listener_receives_every_event(make: EventBusFactory) {
    let bus = make(CAPACITY).await;
    let mut streams: Vec<_> = (0..20)
        .map(|_| bus.subscribe(Subscription::default()))
        .collect();
    let events = numbered(1..=100);

    events.iter().for_each(|event| bus.publish(event.clone()));
    for stream in &mut streams {
        assert_receives(stream, &events).await;
    }
}

async fn an_event_is_delivered_as_it_was_published(make: EventBusFactory) {
    let bus = make(CAPACITY).await;
    let mut stream = bus.subscribe(Subscription::default());
    let full = TaskEvent {
        owner: "Žofie 🎵".to_owned(),
        event: EventKind::DeadLettered,
        status: Status::DeadLetter,
        attempt: u32::MAX,
        error: Some("line one\nline two \u{0}".to_owned()),
        progress: Some(serde_json::json!({"deep": [1, 2.5, null, {"key": "value"}]})),
        ..event(random_task_id(), "", 1 << 53)
    };

    bus.publish(full.clone());
    let received = next_event(&mut stream).await;
    assert_eq!(received, full);
    assert_eq!(received.id(), full.id());
}

async fn a_bus_knows_whether_a_task_has_listeners(make: EventBusFactory) {
    let task = random_task_id();
    let other = random_task_id();
    let wants = [
        Subscription {
            task_id: Some(task),
            owner: None,
        },
        Subscription {
            task_id: None,
            owner: Some("ann".to_owned()),
        },
        Subscription {
            task_id: Some(task),
            owner: Some("ann".to_owned()),
        },
        Subscription::default(),
    ];

    for subscription in wants {
        let bus = make(CAPACITY).await;
        let takes_all = subscription == Subscription::default();
        let _stream = bus.subscribe(subscription);
        assert!(bus.has_listeners(task, "ann"));
        assert!(!takes_all || bus.has_listeners(other, "bob"));
    }
}

async fn publishing_without_listeners_is_harmless(make: EventBusFactory) {
    let bus = make(4).await;
    numbered(1..=1_000)
        .into_iter()
        .for_each(|event| bus.publish(event));
    let mut stream = bus.subscribe(Subscription {
        task_id: Some(random_task_id()),
        owner: None,
    });
    assert!(poll!(stream.next()).is_pending());
}

async fn a_dropped_listener_is_harmless(make: EventBusFactory) {
    let bus = make(CAPACITY).await;
    let mut stays = bus.subscribe(Subscription::default());
    let events = numbered(1..=100);
    for event in &events {
        let leaves = bus.subscribe(Subscription::default());
        bus.publish(event.clone());
        drop(leaves);
    }

    assert_receives(&mut stays, &events).await;
}

async fn a_cancelled_wait_for_events_loses_nothing(make: EventBusFactory) {
    let bus = make(CAPACITY).await;
    let mut stream = bus.subscribe(Subscription::default());
    for event in numbered(1..=100) {
        assert!(
            poll!(stream.next()).is_pending(),
            "no event is published yet"
        );
        bus.publish(event.clone());
        assert_eq!(next_event(&mut stream).await, event);
    }
}

async fn a_slow_listener_learns_how_many_events_it_missed(make: EventBusFactory) {
    let bus = make(16).await;
    let mut slow = bus.subscribe(Subscription::default());
    let events = numbered(1..=10_000);
    events.iter().for_each(|event| bus.publish(event.clone()));

    let mut missed = 0;
    let mut received = Vec::new();
    while missed + (received.len() as u64) < events.len() as u64 {
        match within_deadline(slow.next()).await.expect("the bus is open") {
            Received::Missed(count) => missed += count,
            Received::Event(event) => received.push(event),
        }
    }

    assert_eq!(missed + received.len() as u64, events.len() as u64);
    assert!(
        missed > 0,
        "the bus must not buffer ten thousand events for a slow listener"
    );
    assert!(
        received
            .windows(2)
            .all(|pair| pair[0].version < pair[1].version)
    );

    assert_eq!(
        received.last(),
        events.last(),
        "the oldest events are lost, not the newest"
    );
}

async fn a_listener_that_caught_up_misses_no_more_events(make: EventBusFactory) {
    let bus = make(16).await;
    let mut stream = bus.subscribe(Subscription::default());
    let events = numbered(1..=1_000);
    events.iter().for_each(|event| bus.publish(event.clone()));

    loop {
        match within_deadline(stream.next())
            .await
            .expect("the bus is open")
        {
            Received::Event(event) if event == events[events.len() - 1] => break,
            Received::Event(_) | Received::Missed(_) => {}
        }
    }

    for event in numbered(1..=100) {
        bus.publish(event.clone());
        assert_eq!(next_event(&mut stream).await, event);
    }
}

async fn a_closed_bus_delivers_the_rest_and_ends_its_streams(make: EventBusFactory) {
    let bus = make(CAPACITY).await;
    let mut stream = bus.subscribe(Subscription::default());
    let events = numbered(1..=3);
    events.iter().for_each(|event| bus.publish(event.clone()));
    drop(bus);
    assert_receives(&mut stream, &events).await;
    assert_eq!(within_deadline(stream.next()).await, None);
    assert_eq!(within_deadline(stream.next()).await, None);
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Arc, Mutex};

    use async_trait::async_trait;
    use futures::{
        FutureExt as _, StreamExt as _,
        channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded},
    };

    use super::*;
    use crate::{clock::TestClock, suite::Fresh};

    /// A planted bug: the bus buffers everything for listeners that do not read. Otherwise it is
    /// correct.
    #[derive(Debug, Default)]
    struct UnboundedBus {
        listeners: Mutex<Vec<(Subscription, UnboundedSender<TaskEvent>)>>,
    }

    #[derive(Debug)]
    struct UnboundedStream(UnboundedReceiver<TaskEvent>);

    impl EventBus for UnboundedBus {
        fn publish(&self, event: TaskEvent) {
            let listeners = self.listeners.lock().unwrap();
            for (subscription, sender) in listeners.iter() {
                if subscription.wants(&event) {
                    // The listener may have been dropped.
                    let _ = sender.unbounded_send(event.clone());
                }
            }
        }

        fn subscribe(&self, subscription: Subscription) -> Box<dyn EventStream> {
            let (sender, receiver) = unbounded();
            self.listeners.lock().unwrap().push((subscription, sender));
            Box::new(UnboundedStream(receiver))
        }
    }

    #[async_trait]
    impl EventStream for UnboundedStream {
        async fn next(&mut self) -> Option<Received> {
            self.0.next().await.map(Received::Event)
        }
    }

    /// The reason why a case rejects the bus, if it does.
    fn rejection(case: &Case<EventBusFactory>) -> Option<&'static str> {
        let make: EventBusFactory = Arc::new(|_| {
            let bus: Arc<dyn EventBus> = Arc::new(UnboundedBus::default());
            async { Fresh::new(bus, TestClock::default(), None) }.boxed()
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let ran = catch_unwind(AssertUnwindSafe(|| runtime.block_on((case.run)(make))));

        ran.err()
            .map(|panic| panic.downcast_ref().copied().unwrap_or("another reason"))
    }

    #[test]
    fn only_the_slow_listener_rejects_a_bus_without_bound() {
        let rejections: Vec<_> = cases()
            .iter()
            .filter_map(|case| rejection(case).map(|reason| (case.name, reason)))
            .collect();
        let slow = "a_slow_listener_learns_how_many_events_it_missed";

        assert_eq!(
            rejections,
            [(
                slow,
                "the bus must not buffer ten thousand events for a slow listener"
            )]
        );
    }
}
