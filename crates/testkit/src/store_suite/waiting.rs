//! Waiting tasks: which to publish hints for, the heads of the lanes, and promotion.

use std::sync::Arc;

use longhaul_domain::{
    NewTask, RunAt, TaskId, Timestamp, bounds,
    contract::{
        broker::Hint,
        store::{Access, QueueHead},
    },
    lifecycle::reschedule::Reschedule,
};

use super::{
    case::{Case, cases},
    support::{HOUR_MS, KIND, MANY, OWNER, QUEUE, ids_of, new_task, refused_field, retryable},
};
use crate::{fixture::Fixture, names::queue_name};

pub(super) fn cases() -> Vec<Case> {
    cases![
        due_tasks_are_listed_as_hints_in_the_order_of_claims,
        only_due_tasks_of_the_open_queue_are_listed,
        a_claimed_task_is_not_listed_but_its_retry_is,
        the_list_of_due_tasks_is_bounded,
        the_head_of_each_lane_has_its_earliest_due_time,
        tasks_that_waited_too_long_are_promoted_longest_first,
        promotions_are_bounded_and_limited_to_the_queue,
        an_unserved_type_does_not_block_promotions_of_others,
        due_tasks_of_many_types_are_merged_in_order,
        a_task_dated_in_the_past_has_waited_since_its_submission,
        a_paused_queue_promotes_no_tasks,
        a_change_removes_the_promotion,
        promoted_tasks_are_ahead_and_have_their_own_heads,
        invalid_limits_are_refused,
    ]
}

impl Fixture {
    async fn due(&self, queue: &str) -> Vec<Hint> {
        self.store
            .list_due(&queue_name(queue), MANY)
            .await
            .expect("the queue is valid")
    }

    async fn due_ids(&self, queue: &str) -> Vec<TaskId> {
        self.due(queue)
            .await
            .iter()
            .map(|hint| hint.task_id)
            .collect()
    }

    async fn promote_tasks(&self, waited_ms: u64, most: usize) -> usize {
        self.store
            .promote_tasks(&queue_name(QUEUE), waited_ms, most)
            .await
            .expect("the request is valid")
    }
}

fn in_queue(queue: &str, priority: u8) -> NewTask {
    NewTask {
        queue: queue_name(queue),
        priority,
        ..new_task()
    }
}

async fn due_tasks_are_listed_as_hints_in_the_order_of_claims(fixture: Arc<Fixture>) {
    let now = fixture.store.now().await.unwrap();
    let place = |kind: &str, priority: u8, ms_ago: u64| NewTask {
        task_type: kind.into(),
        priority,
        run_at: RunAt::At(now.minus_ms(ms_ago)),
        correlation_id: Some(format!("c-{kind}-{ms_ago}")),
        trace_context: Some("00-1-2-01".to_owned()),
        ..new_task()
    };

    let tasks = vec![
        place(KIND, 1, 500),
        place("other", 1, 900),
        place(KIND, 9, 1),
        place("other", 5, 3),
        place(KIND, 5, 3),
    ];

    let ids = fixture.submit_all(tasks).await;
    let hints = fixture.due(QUEUE).await;
    let order: Vec<TaskId> = [2, 3, 4, 1, 0]
        .into_iter()
        .map(|index: usize| ids[index])
        .collect();

    assert_eq!(
        hints.iter().map(|hint| hint.task_id).collect::<Vec<_>>(),
        order
    );

    let hint = Hint {
        task_id: ids[1],
        owner: OWNER.to_owned(),
        task_type: "other".to_owned(),
        queue: queue_name(QUEUE),
        priority: 1,
        retry_count: 0,
        submitted_at: fixture.task(ids[1]).await.created_at,
        due_at: now.minus_ms(900),
        lookups: 0,
        correlation_id: Some("c-other-900".to_owned()),
        trace_context: Some("00-1-2-01".to_owned()),
    };

    assert_eq!(hints[3], hint);
}

async fn only_due_tasks_of_the_open_queue_are_listed(fixture: Arc<Fixture>) {
    let here = fixture.submit(in_queue("here", 1)).await;
    let later = fixture
        .submit(NewTask {
            run_at: RunAt::AfterMs(HOUR_MS),
            ..in_queue("here", 9)
        })
        .await;

    fixture.submit(in_queue("there", 1)).await;
    assert_eq!(fixture.due_ids("here").await, [here]);
    assert!(fixture.due_ids("nowhere").await.is_empty());
    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(fixture.due_ids("here").await, [later, here]);
    fixture
        .store
        .pause_queue(&queue_name("here"))
        .await
        .unwrap();
    assert!(fixture.due_ids("here").await.is_empty());
    fixture
        .store
        .resume_queue(&queue_name("here"))
        .await
        .unwrap();
    assert_eq!(fixture.due_ids("here").await, [later, here]);
}

async fn a_claimed_task_is_not_listed_but_its_retry_is(fixture: Arc<Fixture>) {
    let ids = fixture.submit_all(vec![new_task(); 3]).await;
    assert_eq!(fixture.due_ids(QUEUE).await, ids);
    let node = fixture.node().await;
    let lease = fixture.claim_this(node, ids[0]).await;
    assert_eq!(fixture.due_ids(QUEUE).await, ids[1..]);
    fixture.finish(lease, retryable(HOUR_MS)).await;
    assert_eq!(fixture.due_ids(QUEUE).await, ids[1..]);
    fixture.clock.advance_ms(HOUR_MS);
    let hints = fixture.due(QUEUE).await;

    assert_eq!(hints.len(), 3);
    assert_eq!((hints[2].task_id, hints[2].retry_count), (ids[0], 1));
}

async fn the_list_of_due_tasks_is_bounded(fixture: Arc<Fixture>) {
    let kinds = ["a", "b", "c"].map(|kind| NewTask {
        task_type: kind.into(),
        ..new_task()
    });
    let mut ids = Vec::new();

    for _ in 0..4 {
        ids.extend(fixture.submit_all(kinds.to_vec()).await);
    }

    let first = fixture
        .submit(NewTask {
            priority: 2,
            ..new_task()
        })
        .await;

    let listed = fixture.store.list_due(&queue_name(QUEUE), 6).await.unwrap();
    let wanted: Vec<TaskId> = std::iter::once(first).chain(ids).take(6).collect();
    assert_eq!(
        listed.iter().map(|hint| hint.task_id).collect::<Vec<_>>(),
        wanted
    );
}

async fn due_tasks_of_many_types_are_merged_in_order(fixture: Arc<Fixture>) {
    // Nearly all of the first tasks have one type.
    let kind = |name: &str| NewTask {
        task_type: name.into(),
        ..new_task()
    };
    let mut ids = Vec::new();

    for name in ["a", "a", "b", "a", "a", "a", "c", "a", "a", "b", "a", "d"] {
        ids.push(fixture.submit(kind(name)).await);
    }

    for limit in 1..=ids.len() {
        let listed = fixture
            .store
            .list_due(&queue_name(QUEUE), limit)
            .await
            .unwrap();
        assert_eq!(
            listed.iter().map(|hint| hint.task_id).collect::<Vec<_>>(),
            ids[..limit],
            "{limit}"
        );
    }
}

async fn the_head_of_each_lane_has_its_earliest_due_time(fixture: Arc<Fixture>) {
    let now = fixture.store.now().await.unwrap();
    let at = |task: NewTask, ms_ago: u64| NewTask {
        run_at: RunAt::At(now.minus_ms(ms_ago)),
        ..task
    };

    let tasks = vec![
        at(in_queue("a", 1), 10),
        at(in_queue("a", 1), 30),
        at(
            NewTask {
                task_type: "other".into(),
                ..in_queue("a", 1)
            },
            20,
        ),
        at(in_queue("a", 7), 5),
        at(in_queue("b", 1), 7),
        NewTask {
            run_at: RunAt::AfterMs(HOUR_MS),
            ..in_queue("c", 1)
        },
    ];

    fixture.submit_all(tasks).await;
    fixture.store.pause_queue(&queue_name("b")).await.unwrap();
    let head = |queue: &str, priority: u8, kind: &str, ms_ago: u64| QueueHead {
        queue: queue_name(queue),
        priority,
        task_type: kind.to_owned(),
        due_at: now.minus_ms(ms_ago),
    };

    let heads = fixture.store.list_heads().await.unwrap();
    let other = head("a", 1, "other", 20);
    let urgent = head("a", 7, KIND, 5);
    let paused = head("b", 1, KIND, 7);

    assert_eq!(
        heads,
        [
            other.clone(),
            head("a", 1, KIND, 30),
            urgent,
            paused.clone()
        ]
    );

    let node = fixture.node().await;
    fixture.claim_from(node, &["a"], &[KIND], 2).await;
    let heads = fixture.store.list_heads().await.unwrap();
    assert_eq!(
        heads,
        [other, head("a", 1, KIND, 10), paused],
        "claimed tasks are not listed"
    );
}

async fn tasks_that_waited_too_long_are_promoted_longest_first(fixture: Arc<Fixture>) {
    let old = fixture.submit(in_queue(QUEUE, 1)).await;
    let other_type = fixture
        .submit(NewTask {
            task_type: "other".into(),
            ..in_queue(QUEUE, 3)
        })
        .await;

    fixture.clock.advance_ms(HOUR_MS);
    let urgent = fixture.submit(in_queue(QUEUE, 9)).await;
    assert_eq!(fixture.due_ids(QUEUE).await, [urgent, other_type, old]);
    assert_eq!(
        fixture.promote_tasks(2 * HOUR_MS, MANY).await,
        0,
        "no task has waited that long"
    );
    assert_eq!(fixture.promote_tasks(HOUR_MS, MANY).await, 2);

    assert_eq!(
        fixture.promote_tasks(HOUR_MS, MANY).await,
        0,
        "they are promoted already"
    );
    let hints = fixture.due(QUEUE).await;

    assert_eq!(
        hints.iter().map(|hint| hint.task_id).collect::<Vec<_>>(),
        [old, other_type, urgent]
    );
    assert_eq!(hints[0].priority, 9, "as urgent as a hint can be");
    assert_eq!(
        fixture.task(old).await.priority,
        1,
        "its own priority does not change"
    );

    let node = fixture.node().await;
    let claimed = fixture
        .claim_from(node, &[QUEUE], &[KIND, "other"], MANY)
        .await;
    assert_eq!(ids_of(&claimed), [old, other_type, urgent]);
}

async fn promotions_are_bounded_and_limited_to_the_queue(fixture: Arc<Fixture>) {
    let ids = fixture.submit_all(vec![in_queue(QUEUE, 1); 5]).await;
    let others = fixture.submit_all(vec![in_queue("b", 1); 2]).await;
    fixture.clock.advance_ms(HOUR_MS);
    let fresh = fixture.submit(in_queue(QUEUE, 5)).await;
    let other = fixture.submit(in_queue("b", 5)).await;

    assert_eq!(fixture.promote_tasks(HOUR_MS, 2).await, 2);
    assert_eq!(
        fixture.due_ids(QUEUE).await,
        [&ids[..2], &[fresh], &ids[2..]].concat()
    );
    assert_eq!(
        fixture.due_ids("b").await,
        [&[other], &others[..]].concat(),
        "other queues are not changed"
    );

    assert_eq!(fixture.promote_tasks(HOUR_MS, 2).await, 0);
    let node = fixture.node().await;
    fixture.claim_from(node, &[QUEUE], &[KIND], 1).await;
    assert_eq!(
        fixture.promote_tasks(HOUR_MS, 2).await,
        1,
        "one was claimed, so one may follow"
    );
    assert_eq!(
        fixture.due_ids(QUEUE).await,
        [ids[1], ids[2], fresh, ids[3], ids[4]]
    );
}

async fn an_unserved_type_does_not_block_promotions_of_others(fixture: Arc<Fixture>) {
    let unserved = NewTask {
        task_type: "unserved".into(),
        ..in_queue(QUEUE, 1)
    };
    let stuck = fixture.submit_all(vec![unserved; 3]).await;
    let served = fixture.submit_all(vec![in_queue(QUEUE, 1); 2]).await;

    fixture.clock.advance_ms(HOUR_MS);
    fixture.submit(in_queue(QUEUE, 9)).await;
    assert_eq!(fixture.promote_tasks(HOUR_MS, 1).await, 1);
    assert_eq!(
        fixture.due_ids(QUEUE).await[0],
        stuck[0],
        "it has waited longest"
    );
    assert_eq!(fixture.promote_tasks(HOUR_MS, 1).await, 1);

    assert_eq!(fixture.promote_tasks(HOUR_MS, 1).await, 0);
    let node = fixture.node().await;
    assert_eq!(ids_of(&fixture.claim(node, 1).await), served[..1]);
    assert_eq!(fixture.promote_tasks(HOUR_MS, 1).await, 1);
}

async fn a_task_dated_in_the_past_has_waited_since_its_submission(fixture: Arc<Fixture>) {
    let long_ago = Timestamp::from_micros(1_000_000);
    fixture
        .submit(NewTask {
            run_at: RunAt::At(long_ago),
            ..new_task()
        })
        .await;

    assert_eq!(fixture.promote_tasks(HOUR_MS, MANY).await, 0);
    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(fixture.promote_tasks(HOUR_MS, MANY).await, 1);
}

async fn a_paused_queue_promotes_no_tasks(fixture: Arc<Fixture>) {
    fixture.submit(new_task()).await;
    fixture.store.pause_queue(&queue_name(QUEUE)).await.unwrap();
    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(fixture.promote_tasks(HOUR_MS, MANY).await, 0);
    fixture
        .store
        .resume_queue(&queue_name(QUEUE))
        .await
        .unwrap();
    assert_eq!(fixture.promote_tasks(HOUR_MS, MANY).await, 1);
}

async fn a_change_removes_the_promotion(fixture: Arc<Fixture>) {
    let ids = fixture.submit_all(vec![in_queue(QUEUE, 1); 2]).await;
    fixture.clock.advance_ms(HOUR_MS);
    let between = fixture.submit(in_queue(QUEUE, 5)).await;
    assert_eq!(fixture.promote_tasks(HOUR_MS, MANY).await, 2);
    let change = Reschedule {
        priority: Some(2),
        ..Reschedule::default()
    };

    fixture
        .store
        .reschedule_task(&Access::All, ids[0], &change)
        .await
        .unwrap();
    assert_eq!(fixture.due_ids(QUEUE).await, [ids[1], between, ids[0]]);

    // After the hand-back it has its position from before the promotion.
    let node = fixture.node().await;
    let lease = fixture.claim_this(node, ids[1]).await;
    fixture
        .finish(
            lease,
            longhaul_domain::contract::store::AttemptEnd::HandedBack,
        )
        .await;

    assert_eq!(fixture.due_ids(QUEUE).await, [between, ids[0], ids[1]]);
}

async fn promoted_tasks_are_ahead_and_have_their_own_heads(fixture: Arc<Fixture>) {
    let old = fixture.submit_all(vec![in_queue(QUEUE, 1); 2]).await;
    fixture.clock.advance_ms(HOUR_MS);
    let fresh = fixture.submit(in_queue(QUEUE, 5)).await;

    let ahead = |id: TaskId| {
        let fixture = Arc::clone(&fixture);
        async move {
            let task = fixture.task(id).await;
            let now = fixture.store.now().await.unwrap();
            fixture.store.count_ahead(&task, now, MANY).await.unwrap()
        }
    };

    assert_eq!(
        (ahead(fresh).await, ahead(old[0]).await, ahead(old[1]).await),
        (0, 1, 2)
    );
    assert_eq!(fixture.promote_tasks(HOUR_MS, MANY).await, 2);
    assert_eq!(
        (ahead(old[0]).await, ahead(old[1]).await, ahead(fresh).await),
        (0, 1, 2)
    );

    let heads = fixture.store.list_heads().await.unwrap();
    assert_eq!(
        heads.iter().map(|head| head.priority).collect::<Vec<_>>(),
        [5, bounds::FORWARD]
    );
}

async fn invalid_limits_are_refused(fixture: Arc<Fixture>) {
    for limit in [0, bounds::DUE_BATCH + 1] {
        assert_eq!(
            refused_field(fixture.store.list_due(&queue_name(QUEUE), limit).await),
            "limit"
        );
    }

    for most in [0, bounds::CLAIM_BATCH + 1] {
        assert_eq!(
            refused_field(
                fixture
                    .store
                    .promote_tasks(&queue_name(QUEUE), HOUR_MS, most)
                    .await
            ),
            "limit"
        );
    }
}
