//! Hints without delay: which consumer receives them, in which order, and when they are removed.

use std::collections::HashSet;

use futures::{future::join_all, poll};
use longhaul_domain::contract::broker::{Hint, Published};

use super::{
    BrokerFactory, QUEUE, declare, hint, hints, ids, publish, receive, received_ids, tags,
    until_depth,
};
use crate::names::queue_name;
use crate::suite::{Case, cases, within_deadline};

pub(super) fn cases() -> Vec<Case<BrokerFactory>> {
    cases![
        a_hint_is_delivered_as_it_was_published,
        hints_are_delivered_in_the_order_of_publication,
        a_consumer_receives_the_hints_of_its_own_queue_only,
        queues_with_similar_names_are_separate,
        a_hint_for_an_undeclared_queue_is_refused,
        one_refused_hint_does_not_affect_the_others,
        declaring_a_queue_again_keeps_its_hints,
        an_idle_consumer_takes_no_hints,
        a_request_for_zero_hints_returns_at_once,
        a_consumer_is_sent_no_more_than_it_asked_for,
        an_answered_hint_is_not_delivered_again,
        answers_may_come_in_any_order,
        an_answer_with_an_unknown_tag_does_nothing,
        a_paused_consumer_returns_unanswered_hints,
        a_paused_consumer_resumes_with_its_next_request,
        a_dropped_consumer_returns_unanswered_hints,
        a_cancelled_wait_for_hints_loses_nothing,
        requests_of_any_size_lose_no_hints,
        the_depth_counts_waiting_hints,
        a_hint_published_twice_is_delivered_twice,
        many_dispatchers_and_many_consumers_share_all_hints,
    ]
}

pub(super) fn cases_of_priority() -> Vec<Case<BrokerFactory>> {
    cases![a_higher_priority_overtakes]
}

async fn a_hint_is_delivered_as_it_was_published(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let full = Hint {
        owner: "Žofie 🎵".to_owned(),
        priority: 9,
        retry_count: 7,
        lookups: 3,
        correlation_id: Some("request \"7\"".to_owned()),
        trace_context: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned()),
        ..hint(1)
    };

    let longest = Hint {
        owner: "ö".repeat(100),
        task_type: "t".repeat(100),
        priority: 1,
        ..hint(2)
    };

    publish(&*broker, &[full.clone(), longest.clone()]).await;
    let received = receive(&mut broker.hints(QUEUE), 2).await;
    assert_eq!(
        received
            .into_iter()
            .map(|delivery| delivery.hint)
            .collect::<Vec<_>>(),
        [full, longest]
    );
}

async fn hints_are_delivered_in_the_order_of_publication(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let published = hints(2_500);
    for part in published.chunks(600) {
        publish(&*broker, part).await;
    }

    let mut consumer = broker.hints(QUEUE);
    let mut received = Vec::new();
    while received.len() < published.len() {
        let next = receive(&mut consumer, 100).await;
        consumer.answered(&tags(&next)).await;
        received.extend(received_ids(&next));
    }

    assert_eq!(received, ids(&published));
}

async fn a_higher_priority_overtakes(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let published = [1, 9, 5, 1, 9].map(|priority| Hint {
        priority,
        ..hint(0)
    });

    publish(&*broker, &published).await;
    until_depth(&*broker, QUEUE, 5).await;
    let received = received_ids(&receive(&mut broker.hints(QUEUE), 5).await);
    assert_eq!(
        received,
        [1, 4, 2, 0, 3].map(|index| published[index].task_id)
    );
}

async fn a_consumer_receives_the_hints_of_its_own_queue_only(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE, "free_default"]).await;
    let mine = hints(20);
    let other = hints(20);

    for (mine, other) in mine.iter().zip(&other) {
        publish(
            &*broker,
            &[
                Hint {
                    queue: queue_name("free_default"),
                    ..other.clone()
                },
                mine.clone(),
            ],
        )
        .await;
    }

    assert_eq!(
        received_ids(&receive(&mut broker.hints(QUEUE), 20).await),
        ids(&mine)
    );
    assert_eq!(
        received_ids(&receive(&mut broker.hints("free_default"), 20).await),
        ids(&other)
    );
}

async fn queues_with_similar_names_are_separate(make: BrokerFactory) {
    let broker = make(()).await;
    let queues = ["a", "a.b", "a.b.c", "a/b", "a-b", "b", "B", "a:b"];
    declare(&*broker, &queues).await;

    for queue in queues {
        let published = Hint {
            queue: queue_name(queue),
            task_type: "b.c".to_owned(),
            ..hint(0)
        };
        publish(&*broker, std::slice::from_ref(&published)).await;
        assert_eq!(
            receive(&mut broker.hints(queue), 1).await[0].hint,
            published
        );
    }

    for queue in queues {
        assert!(
            broker.depth(queue).await.unwrap() <= 1,
            "{queue} has at most its own hint"
        );
    }
}

async fn a_hint_for_an_undeclared_queue_is_refused(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[]).await;
    let published = hints(3);
    for answer in within_deadline(broker.publish_hints(&published)).await {
        assert!(matches!(answer, Published::Refused(_)), "{answer:?}");
    }

    declare(&*broker, &[QUEUE]).await;
    publish(&*broker, &published).await;
    assert_eq!(
        received_ids(&receive(&mut broker.hints(QUEUE), 3).await),
        ids(&published)
    );
}

async fn one_refused_hint_does_not_affect_the_others(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let mut published = hints(90);
    for index in [0, 17, 18, 60, 89] {
        published[index].queue = queue_name("nowhere");
    }

    for _ in 0..5 {
        let answers = within_deadline(broker.publish_hints(&published)).await;
        assert_eq!(answers.len(), published.len());
        for (hint, answer) in published.iter().zip(&answers) {
            assert_eq!(answer.is_confirmed(), hint.queue == QUEUE, "{answer:?}");
            assert_eq!(
                matches!(answer, Published::Refused(_)),
                hint.queue != QUEUE,
                "{answer:?}"
            );
        }
    }
}

async fn declaring_a_queue_again_keeps_its_hints(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let published = hints(5);
    publish(&*broker, &published).await;
    declare(&*broker, &[QUEUE, "another"]).await;
    declare(&*broker, &[]).await;
    assert_eq!(
        received_ids(&receive(&mut broker.hints(QUEUE), 5).await),
        ids(&published)
    );
}

async fn an_idle_consumer_takes_no_hints(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let _idle = broker.hints(QUEUE);
    let published = hints(10);
    publish(&*broker, &published).await;
    assert_eq!(
        received_ids(&receive(&mut broker.hints(QUEUE), 10).await),
        ids(&published)
    );
}

async fn a_request_for_zero_hints_returns_at_once(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    publish(&*broker, &hints(3)).await;
    let mut consumer = broker.hints(QUEUE);
    assert_eq!(within_deadline(consumer.next(0)).await, []);
    assert_eq!(receive(&mut consumer, 3).await.len(), 3);
}

async fn a_consumer_is_sent_no_more_than_it_asked_for(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let published = hints(10);
    publish(&*broker, &published).await;
    let mut first = broker.hints(QUEUE);
    let mut second = broker.hints(QUEUE);
    let mut received = received_ids(&receive(&mut first, 2).await);

    // The first consumer answers nothing, so it keeps its two hints and gets no more.
    received.extend(received_ids(&receive(&mut second, 8).await));
    assert_eq!(
        received.into_iter().collect::<HashSet<_>>(),
        ids(&published).into_iter().collect()
    );
}

async fn an_answered_hint_is_not_delivered_again(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    publish(&*broker, &hints(20)).await;
    let mut consumer = broker.hints(QUEUE);
    let received = receive(&mut consumer, 20).await;

    consumer.answered(&tags(&received)).await;
    consumer.pause().await;
    drop(consumer);
    let last = hints(1);
    publish(&*broker, &last).await;
    assert_eq!(
        received_ids(&receive(&mut broker.hints(QUEUE), 1).await),
        ids(&last)
    );
}

async fn answers_may_come_in_any_order(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let published = hints(30);
    publish(&*broker, &published).await;
    let mut consumer = broker.hints(QUEUE);
    let received = tags(&receive(&mut consumer, 30).await);
    let order = [29, 0, 1, 3, 2, 10, 9, 4, 28, 27];
    let (first, second) = order.split_at(6);

    consumer
        .answered(
            &first
                .iter()
                .map(|index| received[*index])
                .collect::<Vec<_>>(),
        )
        .await;
    consumer
        .answered(
            &second
                .iter()
                .map(|index| received[*index])
                .collect::<Vec<_>>(),
        )
        .await;
    consumer.pause().await;
    let left: HashSet<_> = (0..30)
        .filter(|index| !order.contains(index))
        .map(|index| published[index].task_id)
        .collect();

    let again = receive(&mut consumer, left.len()).await;
    assert_eq!(
        received_ids(&again).into_iter().collect::<HashSet<_>>(),
        left
    );
}

async fn an_answer_with_an_unknown_tag_does_nothing(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let published = hints(4);
    publish(&*broker, &published).await;
    let mut consumer = broker.hints(QUEUE);

    consumer.answered(&[0, 1, u64::MAX]).await;
    let received = receive(&mut consumer, 2).await;
    for _ in 0..3 {
        consumer.answered(&tags(&received)).await;
        consumer.answered(&[u64::MAX, 1 << 40]).await;
    }

    consumer.answered(&[]).await;
    assert_eq!(
        received_ids(&receive(&mut consumer, 2).await),
        ids(&published[2..])
    );

    // A tag from before a pause is invalid.
    consumer.pause().await;
    let again = receive(&mut consumer, 2).await;
    consumer.answered(&tags(&received)).await;
    assert_eq!(received_ids(&again), ids(&published[2..]));
}

async fn a_paused_consumer_returns_unanswered_hints(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let published = hints(10);
    publish(&*broker, &published).await;
    let mut busy = broker.hints(QUEUE);
    let received = receive(&mut busy, 5).await;

    busy.answered(&tags(&received[..2])).await;
    busy.pause().await;
    let mut free = broker.hints(QUEUE);
    let again = received_ids(&receive(&mut free, 8).await);
    assert_eq!(
        again.into_iter().collect::<HashSet<_>>(),
        ids(&published[2..]).into_iter().collect()
    );
}

async fn a_paused_consumer_resumes_with_its_next_request(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let mut consumer = broker.hints(QUEUE);
    consumer.pause().await;

    for round in 0..20 {
        let published = hints(round % 4 + 1);
        publish(&*broker, &published).await;
        let received = receive(&mut consumer, published.len()).await;
        assert_eq!(
            received_ids(&received).into_iter().collect::<HashSet<_>>(),
            ids(&published).into_iter().collect()
        );
        consumer.answered(&tags(&received)).await;

        // A second pause changes nothing.
        consumer.pause().await;
        consumer.pause().await;
    }
}

async fn a_dropped_consumer_returns_unanswered_hints(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let published = hints(6);
    publish(&*broker, &published).await;
    let mut dropped = broker.hints(QUEUE);
    receive(&mut dropped, 4).await;
    drop(dropped);

    let again = received_ids(&receive(&mut broker.hints(QUEUE), 6).await);
    assert_eq!(
        again.into_iter().collect::<HashSet<_>>(),
        ids(&published).into_iter().collect()
    );
}

async fn a_cancelled_wait_for_hints_loses_nothing(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let mut consumer = broker.hints(QUEUE);

    for _ in 0..50 {
        assert!(
            poll!(consumer.next(8)).is_pending(),
            "no hint is published yet"
        );

        let published = hints(1);
        publish(&*broker, &published).await;
        let received = receive(&mut consumer, 1).await;
        assert_eq!(received_ids(&received), ids(&published));
        consumer.answered(&tags(&received)).await;
    }
}

async fn requests_of_any_size_lose_no_hints(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let published = hints(300);
    publish(&*broker, &published).await;
    let mut consumer = broker.hints(QUEUE);
    let mut received = HashSet::new();

    for most in [1, 7, 3, 50, 2, 9, 1, 100, 4, 16, 300].into_iter().cycle() {
        let next = within_deadline(consumer.next(most)).await;
        assert!(!next.is_empty() && next.len() <= most);
        consumer.answered(&tags(&next)).await;
        received.extend(received_ids(&next));
        if received.len() == published.len() {
            break;
        }
    }

    assert_eq!(received, ids(&published).into_iter().collect());
}

async fn the_depth_counts_waiting_hints(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE, "empty"]).await;
    assert_eq!(broker.depth(QUEUE).await, Ok(0));
    publish(&*broker, &hints(30)).await;
    until_depth(&*broker, QUEUE, 30).await;
    let mut consumer = broker.hints(QUEUE);
    let received = receive(&mut consumer, 10).await;

    until_depth(&*broker, QUEUE, 20).await;
    consumer.answered(&tags(&received[..4])).await;
    consumer.pause().await;
    until_depth(&*broker, QUEUE, 26).await;
    assert_eq!(broker.depth("empty").await, Ok(0));
}

async fn a_hint_published_twice_is_delivered_twice(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let published = hint(1);
    publish(&*broker, &[published.clone(), published.clone()]).await;
    let received = receive(&mut broker.hints(QUEUE), 2).await;
    assert!(received.iter().all(|delivery| delivery.hint == published));
    assert_ne!(received[0].tag, received[1].tag);
}

async fn many_dispatchers_and_many_consumers_share_all_hints(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let dispatchers = (0..8).map(|_| {
        let broker = broker.share();
        tokio::spawn(async move {
            let published = hints(250);
            for part in published.chunks(50) {
                publish(&*broker, part).await;
            }
            ids(&published)
        })
    });

    let (received, mut all_received) = tokio::sync::mpsc::unbounded_channel();
    let consumers: Vec<_> = (0..4)
        .map(|_| {
            let mut consumer = broker.hints(QUEUE);
            let received = received.clone();
            tokio::spawn(async move {
                loop {
                    let next = consumer.next(16).await;
                    consumer.answered(&tags(&next)).await;
                    for id in received_ids(&next) {
                        received.send(id).unwrap();
                    }
                }
            })
        })
        .collect();

    let batches = join_all(dispatchers).await.into_iter();
    let published: HashSet<_> = batches.flat_map(Result::unwrap).collect();

    let mut seen = HashSet::new();
    for _ in 0..published.len() {
        let id = within_deadline(all_received.recv()).await.unwrap();
        assert!(
            seen.insert(id),
            "without faults each hint is delivered once"
        );
    }

    assert_eq!(seen, published);
    consumers.iter().for_each(tokio::task::JoinHandle::abort);
}
