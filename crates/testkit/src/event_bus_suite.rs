//! The conformance suite of the event bus contract.

use futures::poll;
use libtest_mimic::Trial;
use longhaul_domain::{
    Status, TaskId,
    contract::event_bus::{EventBus, EventStream, Heard, Subscription},
    event::{EventKind, TaskEvent},
};

use crate::suite::{self, Case, Factory, cases, random_task_id, within_patience};

/// Makes a bus whose listeners may fall behind by about so many events.
pub type EventBusFactory = Factory<usize, dyn EventBus>;

/// One trial for each case, named `{backend}::event_bus::{sentence}`.
pub fn trials(backend: &str, factory: &EventBusFactory) -> Vec<Trial> {
    suite::trials(backend, "event_bus", factory, cases())
}

fn cases() -> Vec<Case<EventBusFactory>> {
    cases![
        a_listener_hears_what_is_published_in_order,
        a_listener_hears_nothing_from_before_it_came,
        a_listener_hears_only_the_task_that_it_wants,
        a_listener_hears_only_the_owner_that_it_wants,
        every_listener_hears_every_event,
        an_event_comes_as_it_was_published,
        a_bus_knows_that_a_task_is_heard,
        publishing_without_listeners_does_no_harm,
        a_listener_that_left_does_no_harm,
        a_listener_that_stops_waiting_for_a_while_loses_nothing,
        a_slow_listener_holds_up_nobody_and_hears_how_much_it_missed,
        a_listener_that_has_caught_up_misses_nothing_more,
        a_closed_bus_ends_its_streams_after_what_is_left,
    ]
}

const ROOM: usize = 1_024;

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

/// Events of one task that are told apart by their version.
fn numbered(versions: std::ops::RangeInclusive<u64>) -> Vec<TaskEvent> {
    let task = random_task_id();
    versions
        .map(|version| event(task, "ann", version))
        .collect()
}

async fn next_event(stream: &mut Box<dyn EventStream>) -> TaskEvent {
    match within_patience(stream.next()).await {
        Some(Heard::Event(event)) => event,
        other => panic!("an event was published, and {other:?} was heard"),
    }
}

async fn assert_hears(stream: &mut Box<dyn EventStream>, events: &[TaskEvent]) {
    for event in events {
        assert_eq!(next_event(stream).await, *event);
    }
}

async fn a_listener_hears_what_is_published_in_order(make: EventBusFactory) {
    let bus = make(ROOM).await;
    let mut stream = bus.subscribe(Subscription::default());
    let events = numbered(1..=500);
    events.iter().for_each(|event| bus.publish(event.clone()));
    assert_hears(&mut stream, &events).await;
}

async fn a_listener_hears_nothing_from_before_it_came(make: EventBusFactory) {
    let bus = make(ROOM).await;
    let events = numbered(1..=2);
    // Somebody hears the first one before the other comes, so that it is past on every bus.
    let mut early = bus.subscribe(Subscription::default());
    bus.publish(events[0].clone());
    assert_hears(&mut early, &events[..1]).await;
    let mut late = bus.subscribe(Subscription::default());
    bus.publish(events[1].clone());
    assert_hears(&mut late, &events[1..]).await;
}

async fn a_listener_hears_only_the_task_that_it_wants(make: EventBusFactory) {
    let bus = make(ROOM).await;
    let (wanted, other) = (numbered(1..=50), numbered(1..=50));
    let subscription = Subscription {
        task_id: Some(wanted[0].task_id),
        owner: None,
    };
    let mut stream = bus.subscribe(subscription);
    for (wanted, other) in wanted.iter().zip(&other) {
        bus.publish(other.clone());
        bus.publish(wanted.clone());
    }
    assert_hears(&mut stream, &wanted).await;
}

async fn a_listener_hears_only_the_owner_that_it_wants(make: EventBusFactory) {
    let bus = make(ROOM).await;
    let (first, second) = (random_task_id(), random_task_id());
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
    assert_hears(
        &mut of_ann,
        &[
            event(first, "ann", 0),
            event(second, "ann", 3),
            event(second, "ann", 99),
        ],
    )
    .await;
    assert_hears(
        &mut of_both,
        &[event(second, "ann", 3), event(second, "ann", 99)],
    )
    .await;
}

async fn every_listener_hears_every_event(make: EventBusFactory) {
    let bus = make(ROOM).await;
    let mut streams: Vec<_> = (0..20)
        .map(|_| bus.subscribe(Subscription::default()))
        .collect();
    let events = numbered(1..=100);
    events.iter().for_each(|event| bus.publish(event.clone()));
    for stream in &mut streams {
        assert_hears(stream, &events).await;
    }
}

async fn an_event_comes_as_it_was_published(make: EventBusFactory) {
    let bus = make(ROOM).await;
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
    let heard = next_event(&mut stream).await;
    assert_eq!(heard, full);
    assert_eq!(heard.id(), full.id());
}

async fn a_bus_knows_that_a_task_is_heard(make: EventBusFactory) {
    let (task, other) = (random_task_id(), random_task_id());
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
        let bus = make(ROOM).await;
        let hears_all = subscription == Subscription::default();
        let _stream = bus.subscribe(subscription);
        assert!(bus.is_heard(task, "ann"));
        assert!(!hears_all || bus.is_heard(other, "bob"));
    }
}

async fn publishing_without_listeners_does_no_harm(make: EventBusFactory) {
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

async fn a_listener_that_left_does_no_harm(make: EventBusFactory) {
    let bus = make(ROOM).await;
    let mut stays = bus.subscribe(Subscription::default());
    let events = numbered(1..=100);
    for event in &events {
        let leaves = bus.subscribe(Subscription::default());
        bus.publish(event.clone());
        drop(leaves);
    }
    assert_hears(&mut stays, &events).await;
}

async fn a_listener_that_stops_waiting_for_a_while_loses_nothing(make: EventBusFactory) {
    let bus = make(ROOM).await;
    let mut stream = bus.subscribe(Subscription::default());
    for event in numbered(1..=100) {
        assert!(
            poll!(stream.next()).is_pending(),
            "nothing is published yet"
        );
        bus.publish(event.clone());
        assert_eq!(next_event(&mut stream).await, event);
    }
}

async fn a_slow_listener_holds_up_nobody_and_hears_how_much_it_missed(make: EventBusFactory) {
    let bus = make(16).await;
    let mut slow = bus.subscribe(Subscription::default());
    let events = numbered(1..=10_000);
    events.iter().for_each(|event| bus.publish(event.clone()));
    let (mut missed, mut heard) = (0, Vec::new());
    while missed + (heard.len() as u64) < events.len() as u64 {
        match within_patience(slow.next()).await.expect("the bus is open") {
            Heard::Missed(count) => missed += count,
            Heard::Event(event) => heard.push(event),
        }
    }
    assert_eq!(missed + heard.len() as u64, events.len() as u64);
    assert!(
        missed > 0,
        "nobody keeps ten thousand events for one who does not listen"
    );
    assert!(
        heard
            .windows(2)
            .all(|pair| pair[0].version < pair[1].version)
    );
    assert_eq!(
        heard.last(),
        events.last(),
        "the oldest are lost, not the newest"
    );
}

async fn a_listener_that_has_caught_up_misses_nothing_more(make: EventBusFactory) {
    let bus = make(16).await;
    let mut stream = bus.subscribe(Subscription::default());
    let events = numbered(1..=1_000);
    events.iter().for_each(|event| bus.publish(event.clone()));
    loop {
        match within_patience(stream.next())
            .await
            .expect("the bus is open")
        {
            Heard::Event(event) if event == events[events.len() - 1] => break,
            Heard::Event(_) | Heard::Missed(_) => {}
        }
    }
    for event in numbered(1..=100) {
        bus.publish(event.clone());
        assert_eq!(next_event(&mut stream).await, event);
    }
}

async fn a_closed_bus_ends_its_streams_after_what_is_left(make: EventBusFactory) {
    let bus = make(ROOM).await;
    let mut stream = bus.subscribe(Subscription::default());
    let events = numbered(1..=3);
    events.iter().for_each(|event| bus.publish(event.clone()));
    drop(bus);
    assert_hears(&mut stream, &events).await;
    assert_eq!(within_patience(stream.next()).await, None);
    assert_eq!(within_patience(stream.next()).await, None);
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

    /// A planted bug: it keeps everything for those who do not listen. Otherwise it does what a bus must do.
    #[derive(Debug, Default)]
    struct UnboundedBus {
        listeners: Mutex<Vec<(Subscription, UnboundedSender<TaskEvent>)>>,
    }

    #[derive(Debug)]
    struct UnboundedStream(UnboundedReceiver<TaskEvent>);

    impl EventBus for UnboundedBus {
        fn publish(&self, event: TaskEvent) {
            let listeners = self.listeners.lock().unwrap();
            for (_, kept) in listeners
                .iter()
                .filter(|(subscription, _)| subscription.wants(&event))
            {
                // One that has left needs nothing.
                let _ = kept.unbounded_send(event.clone());
            }
        }

        fn subscribe(&self, subscription: Subscription) -> Box<dyn EventStream> {
            let (keep, kept) = unbounded();
            self.listeners.lock().unwrap().push((subscription, keep));
            Box::new(UnboundedStream(kept))
        }
    }

    #[async_trait]
    impl EventStream for UnboundedStream {
        async fn next(&mut self) -> Option<Heard> {
            self.0.next().await.map(Heard::Event)
        }
    }

    /// Why a case rejects the bus, if it does.
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
    fn a_bus_without_a_bound_is_rejected_by_its_slow_listener_and_by_nothing_else() {
        let rejections: Vec<_> = cases()
            .iter()
            .filter_map(|case| rejection(case).map(|reason| (case.name, reason)))
            .collect();
        let slow = "a_slow_listener_holds_up_nobody_and_hears_how_much_it_missed";
        assert_eq!(
            rejections,
            [(
                slow,
                "nobody keeps ten thousand events for one who does not listen"
            )]
        );
    }
}
