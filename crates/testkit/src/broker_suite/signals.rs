//! Signals: who hears them.

use futures::poll;
use longhaul_domain::contract::broker::{BrokerState, Published, Signal, Signals};

use super::{BrokerFactory, QUEUE, bells};
use crate::suite::{Case, cases, random_task_id, within_patience};

pub(super) fn cases() -> Vec<Case<BrokerFactory>> {
    cases![
        every_listener_hears_every_signal_in_order,
        a_listener_hears_nothing_from_before_it_came,
        a_slow_listener_loses_the_oldest_and_hears_the_newest,
        a_broker_that_is_up_says_so,
        a_closed_broker_says_so_and_does_nothing_more,
    ]
}

fn held(queue: &str) -> Signal {
    Signal::Held {
        queues: vec![queue.to_owned()],
    }
}

async fn next(signals: &mut Box<dyn Signals>) -> Signal {
    within_patience(signals.next())
        .await
        .expect("the broker is open")
}

async fn every_listener_hears_every_signal_in_order(make: BrokerFactory) {
    let broker = make(()).await;
    let mut listeners: Vec<_> = (0..5).map(|_| broker.signals()).collect();
    let told = [
        Signal::Cancelled {
            task_ids: vec![random_task_id(), random_task_id()],
        },
        Signal::QueueChanged {
            queue: "vip_short".to_owned(),
        },
        Signal::Held { queues: vec![] },
        Signal::Held {
            queues: vec!["a".to_owned(), "b".to_owned()],
        },
    ];
    told.iter().for_each(|signal| broker.signal(signal.clone()));
    for listener in &mut listeners {
        for signal in &told {
            assert_eq!(next(listener).await, *signal);
        }
    }
}

async fn a_listener_hears_nothing_from_before_it_came(make: BrokerFactory) {
    let broker = make(()).await;
    let mut early = broker.signals();
    broker.signal(held("before"));
    assert_eq!(next(&mut early).await, held("before"));
    let mut late = broker.signals();
    assert!(poll!(late.next()).is_pending());
    broker.signal(held("after"));
    assert_eq!(next(&mut late).await, held("after"));
}

async fn a_slow_listener_loses_the_oldest_and_hears_the_newest(make: BrokerFactory) {
    let broker = make(()).await;
    let mut slow = broker.signals();
    (0..20_000).for_each(|number| broker.signal(held(&number.to_string())));
    while next(&mut slow).await != held("19999") {}
    broker.signal(held("more"));
    assert_eq!(next(&mut slow).await, held("more"));
}

async fn a_broker_that_is_up_says_so(make: BrokerFactory) {
    let broker = make(()).await;
    assert_eq!(broker.state(), BrokerState::Up);
    assert!(poll!(broker.state_after(&BrokerState::Up)).is_pending());
    assert_eq!(
        within_patience(broker.state_after(&BrokerState::Down(String::new()))).await,
        BrokerState::Up
    );
}

async fn a_closed_broker_says_so_and_does_nothing_more(make: BrokerFactory) {
    let broker = make(()).await;
    let mut signals = broker.signals();
    broker.declare(&[QUEUE.to_owned()]).await.unwrap();
    let mut consumer = broker.bells(QUEUE);
    assert!(poll!(consumer.next(1)).is_pending());
    within_patience(broker.close()).await;
    assert!(matches!(
        within_patience(broker.state_after(&BrokerState::Up)).await,
        BrokerState::Down(_)
    ));
    for answer in within_patience(broker.ring(&bells(3))).await {
        assert!(matches!(answer, Published::Unknown(_)), "{answer:?}");
    }
    assert!(within_patience(broker.depth(QUEUE)).await.is_err());
    assert!(within_patience(broker.declare(&[])).await.is_err());
    broker.signal(held("nobody"));
    within_patience(async { while signals.next().await.is_some() {} }).await;
    within_patience(consumer.pause()).await;
    within_patience(broker.close()).await;
}
