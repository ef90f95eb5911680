//! Delayed hints.

use futures::poll;
use longhaul_domain::contract::broker::{Broker, Hint, Published};

use super::{BrokerFactory, QUEUE, declare, hint, hints, ids, publish, receive, received_ids};
use crate::names::queue_name;
use crate::suite::{Case, cases, within_deadline};

pub(super) fn cases() -> Vec<Case<BrokerFactory>> {
    cases![
        a_delayed_hint_is_delivered_as_it_was_published,
        a_delayed_hint_does_not_arrive_early,
        a_long_delay_does_not_block_a_short_one,
        a_hint_without_delay_is_delivered_at_once,
        delayed_hints_reach_their_queues,
    ]
}

/// Publishes delayed hints and expects all of them to be confirmed.
async fn publish_hints_later(broker: &dyn Broker, hints: &[(Hint, u64)]) {
    let answers = within_deadline(broker.publish_hints_later(hints)).await;
    assert_eq!(answers, vec![Published::Confirmed; hints.len()]);
}

async fn a_delayed_hint_is_delivered_as_it_was_published(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let published = Hint {
        retry_count: 3,
        priority: 4,
        correlation_id: Some("request 7".to_owned()),
        ..hint(0)
    };

    publish_hints_later(&*broker, &[(published.clone(), 300)]).await;
    assert_eq!(
        receive(&mut broker.hints(QUEUE), 1).await[0].hint,
        published
    );
}

async fn a_delayed_hint_does_not_arrive_early(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;

    // The delay is longer than this case.
    publish_hints_later(&*broker, &[(hint(0), 3_600_000)]).await;

    let now = hints(1);
    let mut consumer = broker.hints(QUEUE);
    assert!(poll!(consumer.next(2)).is_pending());
    publish(&*broker, &now).await;
    assert_eq!(received_ids(&receive(&mut consumer, 1).await), ids(&now));
}

async fn a_long_delay_does_not_block_a_short_one(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let published = hints(4);
    let delays_ms = [3_600_000, 600_000, 2_000, 250];
    let later: Vec<_> = published.iter().cloned().zip(delays_ms).collect();

    publish_hints_later(&*broker, &later).await;
    let received = received_ids(&receive(&mut broker.hints(QUEUE), 2).await);

    // On a busy machine both may be due before the first is received, in any order.
    assert!(
        ids(&published[2..]).iter().all(|id| received.contains(id)),
        "{received:?}"
    );
}

async fn a_hint_without_delay_is_delivered_at_once(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let published = hints(3);
    let later: Vec<_> = published.iter().cloned().zip([0, 1, 0]).collect();
    publish_hints_later(&*broker, &later).await;

    let received = received_ids(&receive(&mut broker.hints(QUEUE), 3).await);
    assert!(ids(&published).iter().all(|id| received.contains(id)));
}

async fn delayed_hints_reach_their_queues(make: BrokerFactory) {
    let broker = make(()).await;
    let queues = ["a", "a.b", "b"];
    declare(&*broker, &queues).await;
    let published = queues.map(|queue| Hint {
        queue: queue_name(queue),
        ..hint(0)
    });
    let later = published.clone().map(|hint| (hint, 260));
    publish_hints_later(&*broker, &later).await;

    for published in &published {
        assert_eq!(
            receive(&mut broker.hints(&published.queue), 1).await[0].hint,
            *published
        );
    }
}
