//! Submitting: tasks are stored as submitted, idempotency keys work, and batches are atomic.

use std::sync::Arc;

use longhaul_domain::{
    ChildCounts, Idempotency, NewTask, Phase, RetryPolicy, RunAt, Status, StoreError, TaskId,
    Timestamp, bounds, contract::store::Submitted, lifecycle,
};

use super::{
    case::{Case, cases},
    support::{HOUR_MS, MANY, completed, fatal, ids_of, json, new_task, refused_field, with},
};
use crate::{fixture::Fixture, names::queue_name};

pub(super) fn cases() -> Vec<Case> {
    cases![
        every_field_is_read_as_it_was_submitted,
        a_submitted_task_matches_the_domains_decision,
        json_is_stored_unchanged,
        ids_grow_in_the_order_of_submission,
        a_task_has_the_id_that_was_reserved_for_it,
        a_batch_is_submitted_in_order,
        tasks_of_a_batch_may_differ_in_any_field,
        a_batch_is_submitted_whole_or_not_at_all,
        an_empty_batch_is_accepted_and_a_too_large_one_refused,
        a_delay_counts_from_the_submission,
        the_same_key_leads_to_the_same_task,
        the_same_key_with_another_body_is_refused,
        a_key_belongs_to_its_owner,
        a_key_outlives_the_end_of_its_task,
        a_key_is_free_again_after_its_ttl,
        a_key_twice_in_one_batch_makes_one_task,
        a_key_with_two_bodies_in_one_batch_makes_nothing,
        a_batch_with_known_keys_submits_only_new_tasks,
        a_repeated_child_is_not_counted_twice,
        expired_keys_are_pruned_within_the_limit,
    ]
}

fn keyed(key: &str, digest: u8) -> NewTask {
    let idempotency = Some(Idempotency {
        key: key.to_owned(),
        digest: [digest; 32],
        ttl_ms: HOUR_MS,
    });

    NewTask {
        idempotency,
        ..new_task()
    }
}

fn full_task(deadline_at: Timestamp) -> NewTask {
    NewTask {
        tier: Some("enterprise".to_owned()),
        task_key: Some("book-7/chapter-3".to_owned()),
        priority: 8,
        run_at: RunAt::At(Timestamp::from_micros(1_234_567_890_123_456)),
        max_attempts: 17,
        timeout_ms: Some(12_345_678),
        deadline_at: Some(deadline_at),
        finish_step: true,
        retry: RetryPolicy {
            initial_ms: 1_500,
            factor: 1.1,
            jitter: 0.3,
            max_ms: 98_765_432_109,
        },
        parameters: json("{\"text\":\"一只猫 🐈\",\"n\":[1,2.50,-3e2,null,true]}"),
        memo: Some(json("[\"for\",\"people\"]")),
        correlation_id: Some("corr-é-9".to_owned()),
        trace_context: Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned()),
        idempotency: Some(Idempotency {
            key: "key-1".to_owned(),
            digest: [7; 32],
            ttl_ms: HOUR_MS,
        }),
        ..NewTask::new(
            "user/ü-1",
            "generate.summary:v1",
            queue_name("vip_long"),
            json("{}"),
        )
    }
}

async fn every_field_is_read_as_it_was_submitted(fixture: Arc<Fixture>) {
    let deadline = fixture.store.now().await.unwrap().plus_ms(HOUR_MS);
    let new = full_task(deadline);
    let task = fixture.task(fixture.submit(new.clone()).await).await;
    assert_eq!(
        (&*task.owner, &task.tier, &*task.task_type),
        (&*new.owner, &new.tier, &*new.task_type)
    );
    assert_eq!(
        (&task.task_key, &*task.queue, task.priority),
        (&new.task_key, &*new.queue, new.priority)
    );

    assert_eq!(
        (task.max_attempts, task.timeout_ms, task.deadline_at),
        (17, new.timeout_ms, Some(deadline))
    );
    assert_eq!((task.finish_step, task.retry), (true, new.retry));
    assert_eq!((&task.parameters, &task.memo), (&new.parameters, &new.memo));
    assert_eq!(
        (&task.correlation_id, &task.trace_context),
        (&new.correlation_id, &new.trace_context)
    );

    assert_eq!(
        task.due_at,
        Timestamp::from_micros(1_234_567_890_123_456),
        "to the microsecond"
    );
    assert_eq!(
        (task.status, task.phase, task.attempt, task.version),
        (Status::Queued, Phase::Run, 0, 1)
    );

    assert_eq!(
        (task.parent_id, task.children),
        (None, ChildCounts::default())
    );
}

async fn a_submitted_task_matches_the_domains_decision(fixture: Arc<Fixture>) {
    let deadline = fixture.store.now().await.unwrap().plus_ms(HOUR_MS);
    for new in [
        new_task(),
        full_task(deadline),
        NewTask {
            run_at: RunAt::AfterMs(5_000),
            ..new_task()
        },
    ] {
        let id = fixture.submit(new.clone()).await;
        let task = fixture.task(id).await;
        let decided = lifecycle::submit::decide(&new, id, task.created_at).unwrap();
        assert_eq!(task, decided.after);
    }
}

/// Batches of two tasks that differ in one field, and of two that share everything but what usually
/// differs between tasks of a type.
async fn tasks_of_a_batch_may_differ_in_any_field(fixture: Arc<Fixture>) {
    let now = fixture.store.now().await.unwrap();
    let full = full_task(now.plus_ms(HOUR_MS));
    let one = new_task();
    let changed = |change: &dyn Fn(&mut NewTask)| with(one.clone(), change);

    let others = [
        changed(&|task| task.owner = full.owner.clone()),
        changed(&|task| task.tier = full.tier.clone()),
        changed(&|task| task.task_type = full.task_type.clone()),
        changed(&|task| task.task_key = full.task_key.clone()),
        changed(&|task| task.queue = full.queue.clone()),
        changed(&|task| task.priority = full.priority),
        changed(&|task| task.run_at = full.run_at),
        changed(&|task| task.run_at = RunAt::AfterMs(5_000)),
        changed(&|task| task.max_attempts = full.max_attempts),
        changed(&|task| task.timeout_ms = full.timeout_ms),
        changed(&|task| task.deadline_at = full.deadline_at),
        changed(&|task| task.finish_step = true),
        changed(&|task| task.retry = full.retry),
        changed(&|task| task.parameters = full.parameters.clone()),
        changed(&|task| task.memo = full.memo.clone()),
        changed(&|task| task.correlation_id = full.correlation_id.clone()),
        changed(&|task| task.trace_context = full.trace_context.clone()),
    ];

    let plain = with(full.clone(), |task| task.idempotency = None);
    let alike = NewTask {
        task_key: None,
        run_at: RunAt::Now,
        parameters: json("7"),
        ..plain.clone()
    };
    let delayed = with(plain.clone(), |task| task.run_at = RunAt::AfterMs(5_000));

    let pairs = others.into_iter().map(|other| [one.clone(), other]);
    for pair in pairs.chain([[plain, alike], [delayed.clone(), delayed]]) {
        let ids = fixture.submit_all(pair.to_vec()).await;
        for (new, id) in pair.iter().zip(ids) {
            let task = fixture.task(id).await;
            let decided = lifecycle::submit::decide(new, id, task.created_at).unwrap();
            assert_eq!(task, decided.after);
        }
    }
}

async fn json_is_stored_unchanged(fixture: Arc<Fixture>) {
    let texts = [
        "{\"b\":1, \"a\":1.000, \"b\":2}",
        "12345678901234567890123456789.50",
        "\"\\u00e9 \\\\ ' % _ \\\" ; -- 😀\"",
        " [ 1 , 2 ] ",
        "null",
        "\"\"",
        "-0.0",
    ];

    for text in texts {
        let id = fixture
            .submit(NewTask {
                memo: Some(json(text)),
                parameters: json(text),
                ..new_task()
            })
            .await;

        let task = fixture.task(id).await;
        assert_eq!(
            (task.parameters.as_str(), task.memo.unwrap().as_str()),
            (text, text)
        );
    }
}

async fn ids_grow_in_the_order_of_submission(fixture: Arc<Fixture>) {
    let mut ids = Vec::new();
    for _ in 0..20 {
        ids.push(fixture.submit(new_task()).await);
        ids.extend(fixture.submit_all(vec![new_task(); 3]).await);
    }
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    assert!(ids.iter().all(|id| id.0.get_version_num() == 7));
}

async fn a_task_has_the_id_that_was_reserved_for_it(fixture: Arc<Fixture>) {
    let first = fixture.store.next_id();
    let id = fixture.store.next_id();
    assert!(first < id);
    let made = fixture
        .submit(NewTask {
            id: Some(id),
            ..new_task()
        })
        .await;

    assert_eq!((made, fixture.task(id).await.id), (id, id));
    let ids = fixture
        .submit_all(vec![
            new_task(),
            NewTask {
                id: Some(first),
                ..new_task()
            },
        ])
        .await;

    assert_eq!(ids[1], first);
    assert!(ids[0] > id);
}

async fn a_batch_is_submitted_in_order(fixture: Arc<Fixture>) {
    let tasks: Vec<NewTask> = (0..500)
        .map(|number| NewTask {
            parameters: json(&number.to_string()),
            ..new_task()
        })
        .collect();

    let ids = fixture.submit_all(tasks).await;
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    let stored = fixture.all_tasks().await;
    assert_eq!(ids_of(&stored), ids);
    for (number, task) in stored.iter().enumerate() {
        assert_eq!(task.parameters.as_str(), number.to_string());
    }

    let node = fixture.node().await;
    assert_eq!(
        ids_of(&fixture.claim(node, MANY).await),
        ids,
        "the order of submission is that of claims"
    );
}

async fn a_batch_is_submitted_whole_or_not_at_all(fixture: Arc<Fixture>) {
    fixture.submit(keyed("taken", 1)).await;
    let bad = NewTask {
        priority: 10,
        ..new_task()
    };
    let answer = fixture
        .store
        .submit_tasks(vec![keyed("fresh", 1), bad])
        .await;

    assert_eq!(refused_field(answer), "priority");
    let answer = fixture
        .store
        .submit_tasks(vec![keyed("fresh", 1), new_task(), keyed("taken", 2)])
        .await;

    assert!(
        matches!(answer, Err(StoreError::IdempotencyMismatch)),
        "{answer:?}"
    );
    assert_eq!(fixture.all_tasks().await.len(), 1);
    let fresh = fixture.store.submit_task(keyed("fresh", 2)).await.unwrap();
    assert!(!fresh.repeated, "what was not made has left no key behind");
}

async fn an_empty_batch_is_accepted_and_a_too_large_one_refused(fixture: Arc<Fixture>) {
    assert_eq!(fixture.submit_all(vec![]).await, Vec::<TaskId>::new());
    let answer = fixture
        .store
        .submit_tasks(vec![new_task(); bounds::SUBMIT_BATCH + 1])
        .await;
    assert!(matches!(answer, Err(StoreError::Invalid(_))));
    assert!(fixture.all_tasks().await.is_empty());
}

async fn a_delay_counts_from_the_submission(fixture: Arc<Fixture>) {
    let id = fixture
        .submit(NewTask {
            run_at: RunAt::AfterMs(90_000),
            ..new_task()
        })
        .await;

    let task = fixture.task(id).await;
    assert_eq!(task.due_at, task.created_at.plus_ms(90_000));
}

async fn the_same_key_leads_to_the_same_task(fixture: Arc<Fixture>) {
    let first = fixture.store.submit_task(keyed("a", 1)).await.unwrap();
    assert!(!first.repeated);
    let again = fixture.store.submit_task(keyed("a", 1)).await.unwrap();
    assert_eq!(
        again,
        Submitted {
            task_id: first.task_id,
            repeated: true
        }
    );

    assert_eq!(fixture.all_tasks().await.len(), 1);
}

async fn the_same_key_with_another_body_is_refused(fixture: Arc<Fixture>) {
    let first = fixture.submit(keyed("a", 1)).await;
    let answer = fixture.store.submit_task(keyed("a", 2)).await;
    assert!(
        matches!(answer, Err(StoreError::IdempotencyMismatch)),
        "{answer:?}"
    );
    assert_eq!(ids_of(&fixture.all_tasks().await), [first]);
}

async fn a_key_belongs_to_its_owner(fixture: Arc<Fixture>) {
    let mine = fixture.submit(keyed("a", 1)).await;
    let theirs = fixture
        .store
        .submit_task(NewTask {
            owner: "u-2".into(),
            ..keyed("a", 2)
        })
        .await
        .unwrap();
    assert!(!theirs.repeated && theirs.task_id != mine);
}

async fn a_key_outlives_the_end_of_its_task(fixture: Arc<Fixture>) {
    for outcome in [completed(), fatal()] {
        let key = format!("{outcome:?}").len().to_string();
        let id = fixture.submit(keyed(&key, 1)).await;
        fixture.run(id, outcome).await;
        let again = fixture.store.submit_task(keyed(&key, 1)).await.unwrap();
        assert_eq!(
            again,
            Submitted {
                task_id: id,
                repeated: true
            }
        );
    }
}

async fn a_key_is_free_again_after_its_ttl(fixture: Arc<Fixture>) {
    let first = fixture.submit(keyed("a", 1)).await;
    fixture.clock.advance_ms(HOUR_MS / 2);
    assert_eq!(
        fixture.submit(keyed("a", 1)).await,
        first,
        "the key is valid for its whole TTL"
    );
    fixture.clock.advance_ms(HOUR_MS / 2);
    let second = fixture.store.submit_task(keyed("a", 2)).await.unwrap();

    assert!(
        !second.repeated && second.task_id != first,
        "a repetition does not extend the TTL"
    );
    assert_eq!(
        fixture.submit(keyed("a", 2)).await,
        second.task_id,
        "the new key works like the old one"
    );
}

async fn a_key_twice_in_one_batch_makes_one_task(fixture: Arc<Fixture>) {
    let answers = fixture
        .store
        .submit_tasks(vec![keyed("a", 1), keyed("b", 1), keyed("a", 1)])
        .await
        .unwrap();

    assert_eq!(
        answers[2],
        Submitted {
            task_id: answers[0].task_id,
            repeated: true
        }
    );

    assert!(!answers[0].repeated && !answers[1].repeated);
    assert_eq!(fixture.all_tasks().await.len(), 2);
}

async fn a_key_with_two_bodies_in_one_batch_makes_nothing(fixture: Arc<Fixture>) {
    let answer = fixture
        .store
        .submit_tasks(vec![keyed("a", 1), keyed("a", 2)])
        .await;
    assert!(
        matches!(answer, Err(StoreError::IdempotencyMismatch)),
        "{answer:?}"
    );
    assert!(fixture.all_tasks().await.is_empty());
}

async fn a_batch_with_known_keys_submits_only_new_tasks(fixture: Arc<Fixture>) {
    let known = fixture.submit(keyed("a", 1)).await;
    let answers = fixture
        .store
        .submit_tasks(vec![new_task(), keyed("a", 1), keyed("b", 1)])
        .await
        .unwrap();

    assert_eq!(
        answers
            .iter()
            .map(|answer| answer.repeated)
            .collect::<Vec<_>>(),
        [false, true, false]
    );

    assert_eq!(answers[1].task_id, known);
    assert_eq!(fixture.all_tasks().await.len(), 3);
}

async fn a_repeated_child_is_not_counted_twice(fixture: Arc<Fixture>) {
    let parent = fixture.start(new_task()).await;
    let child = NewTask {
        parent: Some(parent),
        ..keyed("child", 1)
    };

    fixture.submit(child.clone()).await;
    assert!(fixture.store.submit_task(child).await.unwrap().repeated);
    assert_eq!(fixture.task(parent.task_id).await.children.total, 1);
}

async fn expired_keys_are_pruned_within_the_limit(fixture: Arc<Fixture>) {
    for number in 0..5 {
        fixture.submit(keyed(&format!("old-{number}"), 1)).await;
    }

    fixture.clock.advance_ms(HOUR_MS);
    let young = fixture.submit(keyed("young", 1)).await;
    assert_eq!(fixture.store.prune_idempotency_keys(3).await.unwrap(), 3);
    assert_eq!(fixture.store.prune_idempotency_keys(3).await.unwrap(), 2);
    assert_eq!(fixture.store.prune_idempotency_keys(3).await.unwrap(), 0);
    assert_eq!(
        fixture.submit(keyed("young", 1)).await,
        young,
        "a valid key is not pruned"
    );

    assert!(
        !fixture
            .store
            .submit_task(keyed("old-0", 2))
            .await
            .unwrap()
            .repeated
    );
}
