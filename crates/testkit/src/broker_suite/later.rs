//! Bells that ring later.

use futures::poll;
use longhaul_domain::contract::broker::{Bell, Broker, Published};

use super::{BrokerFactory, QUEUE, bell, bells, declare, hear, heard_ids, ids, ring};
use crate::suite::{Case, cases, within_patience};

pub(super) fn cases() -> Vec<Case<BrokerFactory>> {
    cases![
        a_later_bell_is_heard_as_it_was_rung,
        a_later_bell_is_not_heard_before_those_that_ring_now,
        a_long_delay_holds_up_no_short_one,
        no_delay_is_now,
        later_bells_find_their_queues,
    ]
}

/// Rings later, and everything is confirmed.
async fn ring_later(broker: &dyn Broker, bells: &[(Bell, u64)]) {
    let answers = within_patience(broker.ring_later(bells)).await;
    assert_eq!(answers, vec![Published::Confirmed; bells.len()]);
}

async fn a_later_bell_is_heard_as_it_was_rung(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let rung = Bell {
        retry_count: 3,
        priority: 4,
        correlation_id: Some("request 7".to_owned()),
        ..bell(0)
    };
    ring_later(&*broker, &[(rung.clone(), 300)]).await;
    assert_eq!(hear(&mut broker.bells(QUEUE), 1).await[0].bell, rung);
}

async fn a_later_bell_is_not_heard_before_those_that_ring_now(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    // So late that it does not come while this case lasts.
    ring_later(&*broker, &[(bell(0), 3_600_000)]).await;
    let now = bells(1);
    let mut consumer = broker.bells(QUEUE);
    assert!(poll!(consumer.next(2)).is_pending());
    ring(&*broker, &now).await;
    assert_eq!(heard_ids(&hear(&mut consumer, 1).await), ids(&now));
}

async fn a_long_delay_holds_up_no_short_one(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let rung = bells(4);
    let delays_ms = [3_600_000, 600_000, 2_000, 250];
    let later: Vec<_> = rung.iter().cloned().zip(delays_ms).collect();
    ring_later(&*broker, &later).await;
    let heard = heard_ids(&hear(&mut broker.bells(QUEUE), 2).await);
    // On a busy machine both may be due before the first of them is looked for.
    assert!(
        ids(&rung[2..]).iter().all(|id| heard.contains(id)),
        "{heard:?}"
    );
}

async fn no_delay_is_now(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let rung = bells(3);
    ring_later(
        &*broker,
        &rung.iter().cloned().zip([0, 1, 0]).collect::<Vec<_>>(),
    )
    .await;
    let heard = hear(&mut broker.bells(QUEUE), 3).await;
    assert!(ids(&rung).iter().all(|id| heard_ids(&heard).contains(id)));
}

async fn later_bells_find_their_queues(make: BrokerFactory) {
    let broker = make(()).await;
    let queues = ["a", "a.b", "b"];
    declare(&*broker, &queues).await;
    let rung: Vec<_> = queues
        .map(|queue| Bell {
            queue: queue.to_owned(),
            ..bell(0)
        })
        .into();
    ring_later(
        &*broker,
        &rung
            .iter()
            .map(|bell| (bell.clone(), 260))
            .collect::<Vec<_>>(),
    )
    .await;
    for rung in &rung {
        assert_eq!(hear(&mut broker.bells(&rung.queue), 1).await[0].bell, *rung);
    }
}
