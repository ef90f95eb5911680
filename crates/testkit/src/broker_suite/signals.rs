//! Signals and the broker's state.

use futures::poll;
use longhaul_domain::contract::broker::{BrokerState, Published, Signal, Signals};

use super::{BrokerFactory, QUEUE, hints};
use crate::suite::{Case, cases, random_task_id, within_deadline};

pub(super) fn cases() -> Vec<Case<BrokerFactory>> {
    cases![
        every_listener_receives_every_signal_in_order,
        a_listener_receives_only_what_is_sent_after_it_subscribed,
        a_slow_listener_loses_the_oldest_signals,
        a_connected_broker_reports_that_it_is_up,
        a_closed_broker_reports_that_it_is_down_and_refuses_work,
    ]
}

fn backlogged(queue: &str) -> Signal {
    Signal::Backlogged {
        queues: vec![queue.to_owned()],
    }
}

async fn next(signals: &mut Box<dyn Signals>) -> Signal {
    within_deadline(signals.next())
        .await
        .expect("the broker is open")
}

async fn every_listener_receives_every_signal_in_order(make: BrokerFactory) {
    let broker = make(()).await;
    let mut listeners: Vec<_> = (0..5).map(|_| broker.signals()).collect();
    let sent = [
        Signal::Cancelled {
            task_ids: vec![random_task_id(), random_task_id()],
        },
        Signal::QueueChanged {
            queue: "vip_short".to_owned(),
        },
        Signal::Backlogged { queues: vec![] },
        Signal::Backlogged {
            queues: vec!["a".to_owned(), "b".to_owned()],
        },
    ];

    sent.iter().for_each(|signal| broker.signal(signal.clone()));
    for listener in &mut listeners {
        for signal in &sent {
            assert_eq!(next(listener).await, *signal);
        }
    }
}

async fn a_listener_receives_only_what_is_sent_after_it_subscribed(make: BrokerFactory) {
    let broker = make(()).await;
    let mut early = broker.signals();
    broker.signal(backlogged("before"));
    assert_eq!(next(&mut early).await, backlogged("before"));
    let mut late = broker.signals();
    assert!(poll!(late.next()).is_pending());
    broker.signal(backlogged("after"));
    assert_eq!(next(&mut late).await, backlogged("after"));
}

async fn a_slow_listener_loses_the_oldest_signals(make: BrokerFactory) {
    let broker = make(()).await;
    let mut slow = broker.signals();
    (0..20_000).for_each(|number| broker.signal(backlogged(&number.to_string())));
    while next(&mut slow).await != backlogged("19999") {}
    broker.signal(backlogged("more"));
    assert_eq!(next(&mut slow).await, backlogged("more"));
}

async fn a_connected_broker_reports_that_it_is_up(make: BrokerFactory) {
    let broker = make(()).await;
    assert_eq!(broker.state(), BrokerState::Up);
    assert!(poll!(broker.state_after(&BrokerState::Up)).is_pending());
    assert_eq!(
        within_deadline(broker.state_after(&BrokerState::Down(String::new()))).await,
        BrokerState::Up
    );
}

async fn a_closed_broker_reports_that_it_is_down_and_refuses_work(make: BrokerFactory) {
    let broker = make(()).await;
    let mut signals = broker.signals();
    broker.declare(&[QUEUE.to_owned()]).await.unwrap();
    let mut consumer = broker.hints(QUEUE);
    assert!(poll!(consumer.next(1)).is_pending());
    within_deadline(broker.close()).await;
    assert!(matches!(
        within_deadline(broker.state_after(&BrokerState::Up)).await,
        BrokerState::Down(_)
    ));

    for answer in within_deadline(broker.publish_hints(&hints(3))).await {
        assert!(matches!(answer, Published::Unknown(_)), "{answer:?}");
    }

    assert!(within_deadline(broker.depth(QUEUE)).await.is_err());
    assert!(within_deadline(broker.declare(&[])).await.is_err());
    broker.signal(backlogged("closed"));
    within_deadline(async { while signals.next().await.is_some() {} }).await;
    within_deadline(consumer.pause()).await;
    within_deadline(broker.close()).await;
}
