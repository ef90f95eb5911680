//! Bells that ring at once: who hears which, in which order, and when they are done with.

use std::collections::HashSet;

use futures::{future::join_all, poll};
use longhaul_domain::contract::broker::{Bell, Published};

use super::{
    BrokerFactory, QUEUE, bell, bells, declare, hear, heard_ids, ids, ring, tags, until_depth,
};
use crate::suite::{Case, cases, within_patience};

pub(super) fn cases() -> Vec<Case<BrokerFactory>> {
    cases![
        a_bell_is_heard_as_it_was_rung,
        bells_are_heard_in_the_order_in_which_they_were_rung,
        a_consumer_hears_its_own_queue_alone,
        queues_whose_names_begin_alike_are_kept_apart,
        a_bell_for_a_queue_that_nobody_declared_is_refused,
        one_refused_bell_does_not_spoil_the_others,
        declaring_again_keeps_what_waits,
        a_consumer_takes_nothing_before_it_is_asked,
        whoever_asks_for_nothing_gets_nothing_at_once,
        no_more_than_asked_for_is_sent_ahead,
        an_answered_bell_does_not_come_again,
        answers_may_come_in_any_order,
        answering_what_is_not_in_hand_does_nothing,
        a_paused_consumer_gives_back_what_it_did_not_answer,
        a_paused_consumer_hears_again_when_it_asks_again,
        a_consumer_that_goes_gives_back_what_it_did_not_answer,
        a_consumer_that_stops_waiting_for_a_while_loses_nothing,
        a_consumer_that_asks_for_more_or_less_loses_nothing,
        the_depth_counts_what_waits,
        the_same_bell_rung_twice_is_heard_twice,
        many_ringers_and_many_consumers_share_all_bells,
    ]
}

pub(super) fn cases_of_priority() -> Vec<Case<BrokerFactory>> {
    cases![a_higher_priority_overtakes]
}

async fn a_bell_is_heard_as_it_was_rung(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let full = Bell {
        owner: "Žofie 🎵".to_owned(),
        priority: 9,
        retry_count: 7,
        looks: 3,
        correlation_id: Some("request \"7\"".to_owned()),
        trace_context: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned()),
        ..bell(1)
    };
    let longest = Bell {
        owner: "ö".repeat(100),
        task_type: "t".repeat(100),
        priority: 1,
        ..bell(2)
    };
    ring(&*broker, &[full.clone(), longest.clone()]).await;
    let heard = hear(&mut broker.bells(QUEUE), 2).await;
    assert_eq!(
        heard
            .into_iter()
            .map(|delivery| delivery.bell)
            .collect::<Vec<_>>(),
        [full, longest]
    );
}

async fn bells_are_heard_in_the_order_in_which_they_were_rung(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let rung = bells(2_500);
    for part in rung.chunks(600) {
        ring(&*broker, part).await;
    }
    let mut consumer = broker.bells(QUEUE);
    let mut heard = Vec::new();
    while heard.len() < rung.len() {
        let next = hear(&mut consumer, 100).await;
        consumer.answered(&tags(&next)).await;
        heard.extend(heard_ids(&next));
    }
    assert_eq!(heard, ids(&rung));
}

async fn a_higher_priority_overtakes(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let rung: Vec<_> = [1, 9, 5, 1, 9]
        .into_iter()
        .map(|priority| Bell {
            priority,
            ..bell(0)
        })
        .collect();
    ring(&*broker, &rung).await;
    until_depth(&*broker, QUEUE, 5).await;
    let heard = heard_ids(&hear(&mut broker.bells(QUEUE), 5).await);
    assert_eq!(heard, [1, 4, 2, 0, 3].map(|place| rung[place].task_id));
}

async fn a_consumer_hears_its_own_queue_alone(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE, "free_default"]).await;
    let (mine, other) = (bells(20), bells(20));
    for (mine, other) in mine.iter().zip(&other) {
        ring(
            &*broker,
            &[
                Bell {
                    queue: "free_default".to_owned(),
                    ..other.clone()
                },
                mine.clone(),
            ],
        )
        .await;
    }
    assert_eq!(
        heard_ids(&hear(&mut broker.bells(QUEUE), 20).await),
        ids(&mine)
    );
    assert_eq!(
        heard_ids(&hear(&mut broker.bells("free_default"), 20).await),
        ids(&other)
    );
}

async fn queues_whose_names_begin_alike_are_kept_apart(make: BrokerFactory) {
    let broker = make(()).await;
    let queues = ["a", "a.b", "a.b.c", "a/b", "a-b", "b", "B", "a:b"];
    declare(&*broker, &queues).await;
    for queue in queues {
        let rung = Bell {
            queue: queue.to_owned(),
            task_type: "b.c".to_owned(),
            ..bell(0)
        };
        ring(&*broker, std::slice::from_ref(&rung)).await;
        assert_eq!(hear(&mut broker.bells(queue), 1).await[0].bell, rung);
    }
    for queue in queues {
        assert!(
            broker.depth(queue).await.unwrap() <= 1,
            "{queue} hears its own bell alone"
        );
    }
}

async fn a_bell_for_a_queue_that_nobody_declared_is_refused(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[]).await;
    let rung = bells(3);
    for answer in within_patience(broker.ring(&rung)).await {
        assert!(matches!(answer, Published::Refused(_)), "{answer:?}");
    }
    declare(&*broker, &[QUEUE]).await;
    ring(&*broker, &rung).await;
    assert_eq!(
        heard_ids(&hear(&mut broker.bells(QUEUE), 3).await),
        ids(&rung)
    );
}

async fn one_refused_bell_does_not_spoil_the_others(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let mut rung = bells(90);
    for place in [0, 17, 18, 60, 89] {
        rung[place].queue = "nowhere".to_owned();
    }
    for _ in 0..5 {
        let answers = within_patience(broker.ring(&rung)).await;
        assert_eq!(answers.len(), rung.len());
        for (bell, answer) in rung.iter().zip(&answers) {
            assert_eq!(answer.is_confirmed(), bell.queue == QUEUE, "{answer:?}");
            assert_eq!(
                matches!(answer, Published::Refused(_)),
                bell.queue != QUEUE,
                "{answer:?}"
            );
        }
    }
}

async fn declaring_again_keeps_what_waits(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let rung = bells(5);
    ring(&*broker, &rung).await;
    declare(&*broker, &[QUEUE, "another"]).await;
    declare(&*broker, &[]).await;
    assert_eq!(
        heard_ids(&hear(&mut broker.bells(QUEUE), 5).await),
        ids(&rung)
    );
}

async fn a_consumer_takes_nothing_before_it_is_asked(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let _idle = broker.bells(QUEUE);
    let rung = bells(10);
    ring(&*broker, &rung).await;
    assert_eq!(
        heard_ids(&hear(&mut broker.bells(QUEUE), 10).await),
        ids(&rung)
    );
}

async fn whoever_asks_for_nothing_gets_nothing_at_once(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    ring(&*broker, &bells(3)).await;
    let mut consumer = broker.bells(QUEUE);
    assert_eq!(within_patience(consumer.next(0)).await, []);
    assert_eq!(hear(&mut consumer, 3).await.len(), 3);
}

async fn no_more_than_asked_for_is_sent_ahead(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let rung = bells(10);
    ring(&*broker, &rung).await;
    let (mut first, mut second) = (broker.bells(QUEUE), broker.bells(QUEUE));
    let mut heard = heard_ids(&hear(&mut first, 2).await);
    // The first one answers nothing, so it has two places and no more.
    heard.extend(heard_ids(&hear(&mut second, 8).await));
    assert_eq!(
        heard.into_iter().collect::<HashSet<_>>(),
        ids(&rung).into_iter().collect()
    );
}

async fn an_answered_bell_does_not_come_again(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    ring(&*broker, &bells(20)).await;
    let mut consumer = broker.bells(QUEUE);
    let heard = hear(&mut consumer, 20).await;
    consumer.answered(&tags(&heard)).await;
    consumer.pause().await;
    drop(consumer);
    let last = bells(1);
    ring(&*broker, &last).await;
    assert_eq!(
        heard_ids(&hear(&mut broker.bells(QUEUE), 1).await),
        ids(&last)
    );
}

async fn answers_may_come_in_any_order(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let rung = bells(30);
    ring(&*broker, &rung).await;
    let mut consumer = broker.bells(QUEUE);
    let heard = tags(&hear(&mut consumer, 30).await);
    let order = [29, 0, 1, 3, 2, 10, 9, 4, 28, 27];
    let (first, second) = order.split_at(6);
    consumer
        .answered(&first.iter().map(|place| heard[*place]).collect::<Vec<_>>())
        .await;
    consumer
        .answered(&second.iter().map(|place| heard[*place]).collect::<Vec<_>>())
        .await;
    consumer.pause().await;
    let left: HashSet<_> = (0..30)
        .filter(|place| !order.contains(place))
        .map(|place| rung[place].task_id)
        .collect();
    let again = hear(&mut consumer, left.len()).await;
    assert_eq!(heard_ids(&again).into_iter().collect::<HashSet<_>>(), left);
}

async fn answering_what_is_not_in_hand_does_nothing(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let rung = bells(4);
    ring(&*broker, &rung).await;
    let mut consumer = broker.bells(QUEUE);
    consumer.answered(&[0, 1, u64::MAX]).await;
    let heard = hear(&mut consumer, 2).await;
    for _ in 0..3 {
        consumer.answered(&tags(&heard)).await;
        consumer.answered(&[u64::MAX, 1 << 40]).await;
    }
    consumer.answered(&[]).await;
    assert_eq!(heard_ids(&hear(&mut consumer, 2).await), ids(&rung[2..]));
    // A tag from before a pause is void.
    consumer.pause().await;
    let again = hear(&mut consumer, 2).await;
    consumer.answered(&tags(&heard)).await;
    assert_eq!(heard_ids(&again), ids(&rung[2..]));
}

async fn a_paused_consumer_gives_back_what_it_did_not_answer(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let rung = bells(10);
    ring(&*broker, &rung).await;
    let mut busy = broker.bells(QUEUE);
    let heard = hear(&mut busy, 5).await;
    busy.answered(&tags(&heard[..2])).await;
    busy.pause().await;
    let mut free = broker.bells(QUEUE);
    let again = heard_ids(&hear(&mut free, 8).await);
    assert_eq!(
        again.into_iter().collect::<HashSet<_>>(),
        ids(&rung[2..]).into_iter().collect()
    );
}

async fn a_paused_consumer_hears_again_when_it_asks_again(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let mut consumer = broker.bells(QUEUE);
    consumer.pause().await;
    for round in 0..20 {
        let rung = bells(round % 4 + 1);
        ring(&*broker, &rung).await;
        let heard = hear(&mut consumer, rung.len()).await;
        assert_eq!(
            heard_ids(&heard).into_iter().collect::<HashSet<_>>(),
            ids(&rung).into_iter().collect()
        );
        consumer.answered(&tags(&heard)).await;
        consumer.pause().await;
        consumer.pause().await;
    }
}

async fn a_consumer_that_goes_gives_back_what_it_did_not_answer(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let rung = bells(6);
    ring(&*broker, &rung).await;
    let mut goes = broker.bells(QUEUE);
    hear(&mut goes, 4).await;
    drop(goes);
    let again = heard_ids(&hear(&mut broker.bells(QUEUE), 6).await);
    assert_eq!(
        again.into_iter().collect::<HashSet<_>>(),
        ids(&rung).into_iter().collect()
    );
}

async fn a_consumer_that_stops_waiting_for_a_while_loses_nothing(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let mut consumer = broker.bells(QUEUE);
    for _ in 0..50 {
        assert!(poll!(consumer.next(8)).is_pending(), "nothing is rung yet");
        let rung = bells(1);
        ring(&*broker, &rung).await;
        let heard = hear(&mut consumer, 1).await;
        assert_eq!(heard_ids(&heard), ids(&rung));
        consumer.answered(&tags(&heard)).await;
    }
}

async fn a_consumer_that_asks_for_more_or_less_loses_nothing(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let rung = bells(300);
    ring(&*broker, &rung).await;
    let mut consumer = broker.bells(QUEUE);
    let mut heard = HashSet::new();
    for most in [1, 7, 3, 50, 2, 9, 1, 100, 4, 16, 300].into_iter().cycle() {
        let next = within_patience(consumer.next(most)).await;
        assert!(!next.is_empty() && next.len() <= most);
        consumer.answered(&tags(&next)).await;
        heard.extend(heard_ids(&next));
        if heard.len() == rung.len() {
            break;
        }
    }
    assert_eq!(heard, ids(&rung).into_iter().collect());
}

async fn the_depth_counts_what_waits(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE, "empty"]).await;
    assert_eq!(broker.depth(QUEUE).await, Ok(0));
    ring(&*broker, &bells(30)).await;
    until_depth(&*broker, QUEUE, 30).await;
    let mut consumer = broker.bells(QUEUE);
    let heard = hear(&mut consumer, 10).await;
    until_depth(&*broker, QUEUE, 20).await;
    consumer.answered(&tags(&heard[..4])).await;
    consumer.pause().await;
    until_depth(&*broker, QUEUE, 26).await;
    assert_eq!(broker.depth("empty").await, Ok(0));
}

async fn the_same_bell_rung_twice_is_heard_twice(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let rung = bell(1);
    ring(&*broker, &[rung.clone(), rung.clone()]).await;
    let heard = hear(&mut broker.bells(QUEUE), 2).await;
    assert!(heard.iter().all(|delivery| delivery.bell == rung));
    assert_ne!(heard[0].tag, heard[1].tag);
}

async fn many_ringers_and_many_consumers_share_all_bells(make: BrokerFactory) {
    let broker = make(()).await;
    declare(&*broker, &[QUEUE]).await;
    let ringers = (0..8).map(|_| {
        let broker = broker.share();
        tokio::spawn(async move {
            let rung = bells(250);
            for part in rung.chunks(50) {
                ring(&*broker, part).await;
            }
            ids(&rung)
        })
    });
    let (heard, mut all_heard) = tokio::sync::mpsc::unbounded_channel();
    let consumers: Vec<_> = (0..4)
        .map(|_| {
            let (mut consumer, heard) = (broker.bells(QUEUE), heard.clone());
            tokio::spawn(async move {
                loop {
                    let next = consumer.next(16).await;
                    consumer.answered(&tags(&next)).await;
                    heard_ids(&next)
                        .into_iter()
                        .for_each(|id| heard.send(id).unwrap());
                }
            })
        })
        .collect();
    let rung: HashSet<_> = join_all(ringers)
        .await
        .into_iter()
        .flat_map(Result::unwrap)
        .collect();
    let mut seen = HashSet::new();
    for _ in 0..rung.len() {
        let id = within_patience(all_heard.recv()).await.unwrap();
        assert!(
            seen.insert(id),
            "nothing went wrong, so every bell is heard once"
        );
    }
    assert_eq!(seen, rung);
    consumers.iter().for_each(tokio::task::JoinHandle::abort);
}
