//! Claims: which tasks a node gets, in which order.

use std::sync::Arc;

use longhaul_domain::{
    NewTask, RunAt, Status, StoreError, TaskId, TaskRecord, Timestamp, bounds,
    lifecycle::{self, Command},
};

use super::{
    case::{Case, cases},
    support::{
        HOUR_MS, KIND, MANY, QUEUE, claim_request, completed, ids_of, lease_of, new_task,
        random_node_id, retryable,
    },
};
use crate::{fixture::Fixture, names::queue_name};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_claim_starts_a_new_attempt_with_a_new_lease,
        higher_priorities_go_first_then_earlier_due_times_then_older_tasks,
        claims_have_one_order_across_queues_and_types,
        claims_have_one_order_across_many_lanes,
        a_claim_takes_no_more_than_its_limit,
        other_queues_are_not_claimed,
        types_that_the_node_does_not_serve_are_not_claimed,
        a_node_that_serves_nothing_claims_nothing,
        a_delayed_task_is_claimed_only_when_due,
        a_task_dated_in_the_past_is_claimed_first,
        a_retry_is_claimed_only_when_due,
        a_paused_queue_is_not_claimed_until_it_is_resumed,
        a_pause_does_not_affect_running_tasks,
        an_unknown_node_may_not_claim,
        a_lost_node_may_not_claim,
        a_retired_node_may_not_claim,
        a_limit_of_zero_or_above_the_bound_is_refused,
        the_next_due_time_is_that_of_the_first_claimable_task,
        submit_and_claim_claims_the_new_task_if_it_is_first,
        submit_and_claim_claims_the_first_task,
        submit_and_claim_claims_nothing_from_a_paused_queue,
        submit_and_claim_for_a_lost_node_submits_nothing,
    ]
}

async fn a_claim_starts_a_new_attempt_with_a_new_lease(fixture: Arc<Fixture>) {
    let ids = fixture.submit_all(vec![new_task(), new_task()]).await;
    let before = fixture.task(ids[0]).await;
    let node = fixture.node().await;
    let claimed = fixture.claim(node, MANY).await;
    assert_eq!(ids_of(&claimed), ids);
    assert_ne!(claimed[0].lease_token, claimed[1].lease_token);

    let task = fixture.task(ids[0]).await;
    assert_eq!(task, claimed[0], "the answer is the row");
    let lease = lease_of(&task);
    let started = task.last_attempt_at.unwrap();
    let decided = lifecycle::claim::decide(&before, node, "host-1", lease.token, started).unwrap();

    assert_eq!(task, decided.after, "the row is what the domain decides");
    assert!(started >= before.created_at);
}

async fn higher_priorities_go_first_then_earlier_due_times_then_older_tasks(fixture: Arc<Fixture>) {
    let now = fixture.store.now().await.unwrap();
    let place = |priority: u8, ms_ago: u64| NewTask {
        priority,
        run_at: RunAt::At(now.minus_ms(ms_ago)),
        ..new_task()
    };

    let tasks = [
        place(1, 500),
        place(1, 900),
        place(9, 1),
        place(5, 3),
        place(5, 3),
        place(5, 4),
        place(2, 0),
    ];

    let ids = fixture.submit_all(tasks.to_vec()).await;
    let node = fixture.node().await;
    let order: Vec<TaskId> = [2, 5, 3, 4, 6, 1, 0]
        .into_iter()
        .map(|index: usize| ids[index])
        .collect();

    assert_eq!(ids_of(&fixture.claim(node, 3).await), order[..3]);
    assert_eq!(ids_of(&fixture.claim(node, MANY).await), order[3..]);
}

async fn claims_have_one_order_across_queues_and_types(fixture: Arc<Fixture>) {
    let now = fixture.store.now().await.unwrap();
    let place = |queue: &str, kind: &str, ms_ago: u64| NewTask {
        queue: queue_name(queue),
        task_type: kind.into(),
        run_at: RunAt::At(now.minus_ms(ms_ago)),
        ..new_task()
    };

    let tasks = vec![
        place("a", "x", 1),
        place("b", "y", 4),
        place("a", "y", 2),
        place("b", "x", 3),
        place("c", "x", 5),
    ];

    let ids = fixture.submit_all(tasks).await;
    let node = fixture.node().await;
    let claimed = fixture
        .claim_from(node, &["a", "b"], &["x", "y"], MANY)
        .await;

    assert_eq!(ids_of(&claimed), [ids[1], ids[3], ids[2], ids[0]]);
}

async fn claims_have_one_order_across_many_lanes(fixture: Arc<Fixture>) {
    let kinds: Vec<String> = (0..70).map(|number| format!("kind-{number}")).collect();
    let moment = |place: usize| {
        RunAt::At(Timestamp::from_micros(
            1_000_000 - i64::try_from(place).unwrap(),
        ))
    };
    let task = |(place, kind): (usize, &String)| NewTask {
        task_type: kind.clone().into(),
        priority: if place % 3 == 0 { 2 } else { 1 },
        run_at: moment(place),
        ..new_task()
    };

    let ids = fixture
        .submit_all(kinds.iter().enumerate().map(task).collect())
        .await;
    let node = fixture.node().await;
    let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
    let mut claimed = Vec::new();

    for limit in [1, 9, 50, 500] {
        claimed.extend(ids_of(
            &fixture.claim_from(node, &[QUEUE], &kinds, limit).await,
        ));
    }

    let (first, second): (Vec<usize>, Vec<usize>) = (0..70).rev().partition(|place| place % 3 == 0);
    let wanted: Vec<_> = first
        .into_iter()
        .chain(second)
        .map(|place| ids[place])
        .collect();

    assert_eq!(claimed, wanted);
}

async fn a_claim_takes_no_more_than_its_limit(fixture: Arc<Fixture>) {
    let ids = fixture.submit_all(vec![new_task(); 5]).await;
    let node = fixture.node().await;
    assert_eq!(ids_of(&fixture.claim(node, 2).await), ids[..2]);
    assert_eq!(ids_of(&fixture.claim(node, 2).await), ids[2..4]);
    assert_eq!(ids_of(&fixture.claim(node, 2).await), ids[4..]);
    assert!(fixture.claim(node, 2).await.is_empty());
}

async fn other_queues_are_not_claimed(fixture: Arc<Fixture>) {
    let other = fixture
        .submit(NewTask {
            queue: queue_name("other"),
            priority: 9,
            ..new_task()
        })
        .await;

    let mine = fixture.submit(new_task()).await;
    let node = fixture.node().await;
    assert_eq!(ids_of(&fixture.claim(node, MANY).await), [mine]);
    assert_eq!(fixture.status(other).await, Status::Queued);
}

async fn types_that_the_node_does_not_serve_are_not_claimed(fixture: Arc<Fixture>) {
    let unknown = fixture
        .submit(NewTask {
            task_type: "unknown".into(),
            priority: 9,
            ..new_task()
        })
        .await;

    let known = fixture.submit(new_task()).await;
    let node = fixture.node().await;
    assert_eq!(ids_of(&fixture.claim(node, MANY).await), [known]);
    assert_eq!(fixture.status(unknown).await, Status::Queued);

    assert_eq!(
        ids_of(
            &fixture
                .claim_from(node, &[QUEUE], &[KIND, "unknown"], MANY)
                .await
        ),
        [unknown]
    );
}

async fn a_node_that_serves_nothing_claims_nothing(fixture: Arc<Fixture>) {
    fixture.submit(new_task()).await;
    let node = fixture.node().await;
    assert!(
        fixture
            .claim_from(node, &[], &[KIND], MANY)
            .await
            .is_empty()
    );

    assert!(
        fixture
            .claim_from(node, &[QUEUE], &[], MANY)
            .await
            .is_empty()
    );

    assert_eq!(fixture.store.next_due_at(&[], &[]).await.unwrap(), None);
}

async fn a_delayed_task_is_claimed_only_when_due(fixture: Arc<Fixture>) {
    let delayed = fixture
        .submit(NewTask {
            run_at: RunAt::AfterMs(2 * HOUR_MS),
            priority: 9,
            ..new_task()
        })
        .await;

    let plain = fixture.submit(new_task()).await;
    let node = fixture.node().await;
    assert_eq!(ids_of(&fixture.claim(node, MANY).await), [plain]);
    fixture.clock.advance_ms(HOUR_MS);
    assert!(fixture.claim(node, MANY).await.is_empty());
    fixture.clock.advance_ms(HOUR_MS);
    assert_eq!(ids_of(&fixture.claim(node, MANY).await), [delayed]);
}

async fn a_task_dated_in_the_past_is_claimed_first(fixture: Arc<Fixture>) {
    let now = fixture.store.now().await.unwrap();
    let first = fixture.submit(new_task()).await;
    let dated = fixture
        .submit(NewTask {
            run_at: RunAt::At(now.minus_ms(HOUR_MS)),
            ..new_task()
        })
        .await;

    assert_eq!(fixture.task(dated).await.due_at, now.minus_ms(HOUR_MS));
    let node = fixture.node().await;
    assert_eq!(ids_of(&fixture.claim(node, MANY).await), [dated, first]);
}

async fn a_retry_is_claimed_only_when_due(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    fixture.finish(lease, retryable(HOUR_MS)).await;
    let node = fixture.node().await;
    assert!(fixture.claim(node, MANY).await.is_empty());
    fixture.clock.advance_ms(HOUR_MS);
    let claimed = fixture.claim(node, MANY).await;

    assert_eq!(ids_of(&claimed), [lease.task_id]);
    assert_eq!(
        (claimed[0].attempt, claimed[0].status),
        (2, Status::Running)
    );
}

async fn a_paused_queue_is_not_claimed_until_it_is_resumed(fixture: Arc<Fixture>) {
    let paused = fixture
        .submit(NewTask {
            priority: 9,
            ..new_task()
        })
        .await;

    let open = fixture
        .submit(NewTask {
            queue: queue_name("open"),
            ..new_task()
        })
        .await;

    let node = fixture.node().await;
    fixture.store.pause_queue(&queue_name(QUEUE)).await.unwrap();
    assert_eq!(
        ids_of(
            &fixture
                .claim_from(node, &[QUEUE, "open"], &[KIND], MANY)
                .await
        ),
        [open]
    );

    let later = fixture.submit(new_task()).await;
    assert!(
        fixture.claim(node, MANY).await.is_empty(),
        "a task submitted to a paused queue waits"
    );
    fixture
        .store
        .resume_queue(&queue_name(QUEUE))
        .await
        .unwrap();
    assert_eq!(ids_of(&fixture.claim(node, MANY).await), [paused, later]);
}

async fn a_pause_does_not_affect_running_tasks(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    fixture.store.pause_queue(&queue_name(QUEUE)).await.unwrap();
    assert!(fixture.finish(lease, completed()).await.is_accepted());
    assert_eq!(fixture.status(lease.task_id).await, Status::Completed);
}

async fn an_unknown_node_may_not_claim(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    let request = claim_request(random_node_id(), &[QUEUE], &[KIND], MANY);
    let answer = fixture.store.claim_tasks(&request).await;
    assert!(matches!(answer, Err(StoreError::NodeLost)), "{answer:?}");
    assert_eq!(fixture.status(id).await, Status::Queued);
}

async fn a_lost_node_may_not_claim(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    let lost = fixture.node().await;
    fixture.clock.advance_ms(HOUR_MS);
    fixture.rescue(5).await;
    let answer = fixture
        .store
        .claim_tasks(&claim_request(lost, &[QUEUE], &[KIND], MANY))
        .await;
    assert!(matches!(answer, Err(StoreError::NodeLost)), "{answer:?}");

    assert_eq!(fixture.status(id).await, Status::Queued);
}

async fn a_retired_node_may_not_claim(fixture: Arc<Fixture>) {
    fixture.submit(new_task()).await;
    let node = fixture.node().await;
    fixture.store.retire_node(node).await.unwrap();
    let answer = fixture
        .store
        .claim_tasks(&claim_request(node, &[QUEUE], &[KIND], MANY))
        .await;
    assert!(matches!(answer, Err(StoreError::NodeLost)), "{answer:?}");
}

async fn a_limit_of_zero_or_above_the_bound_is_refused(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    let node = fixture.node().await;
    for limit in [0, bounds::CLAIM_BATCH + 1, usize::MAX] {
        let answer = fixture
            .store
            .claim_tasks(&claim_request(node, &[QUEUE], &[KIND], limit))
            .await;
        assert!(
            matches!(answer, Err(StoreError::Invalid(_))),
            "{limit}: {answer:?}"
        );
    }

    let allowed: Vec<TaskRecord> = fixture.claim(node, bounds::CLAIM_BATCH).await;
    assert_eq!(ids_of(&allowed), [id]);
    assert!(lifecycle::table::targets(Command::Claim, Status::Queued).contains(&allowed[0].status));
}

async fn the_next_due_time_is_that_of_the_first_claimable_task(fixture: Arc<Fixture>) {
    let queues = vec![queue_name(QUEUE)];
    let kinds = vec![KIND.to_owned()];
    let next = || async { fixture.store.next_due_at(&queues, &kinds).await.unwrap() };
    assert_eq!(next().await, None);
    let far = fixture
        .submit(NewTask {
            run_at: RunAt::AfterMs(3 * HOUR_MS),
            priority: 9,
            ..new_task()
        })
        .await;

    let near = fixture
        .submit(NewTask {
            run_at: RunAt::AfterMs(2 * HOUR_MS),
            ..new_task()
        })
        .await;

    fixture
        .submit(NewTask {
            queue: queue_name("other"),
            ..new_task()
        })
        .await;

    fixture
        .submit(NewTask {
            task_type: "unknown".into(),
            ..new_task()
        })
        .await;

    assert_eq!(next().await, Some(fixture.task(near).await.due_at));
    fixture.clock.advance_ms(2 * HOUR_MS);
    assert_eq!(
        next().await,
        Some(fixture.task(near).await.due_at),
        "a waiting task has a due time in the past"
    );
    fixture.run(near, completed()).await;
    assert_eq!(next().await, Some(fixture.task(far).await.due_at));

    fixture.store.pause_queue(&queue_name(QUEUE)).await.unwrap();
    assert_eq!(next().await, None, "a paused queue has nothing due");
}

async fn submit_and_claim_claims_the_new_task_if_it_is_first(fixture: Arc<Fixture>) {
    let node = fixture.node().await;
    let (submitted, claimed) = fixture
        .store
        .submit_and_claim(new_task(), &claim_request(node, &[QUEUE], &[KIND], 1))
        .await
        .unwrap();

    assert_eq!(ids_of(&claimed), [submitted.task_id]);
    let task = fixture.task(submitted.task_id).await;
    assert_eq!(
        (task.status, task.attempt, task.version),
        (Status::Running, 1, 2)
    );
    assert_eq!(task, claimed[0], "the answer is the row");
    fixture.finish(lease_of(&task), completed()).await;
}

async fn submit_and_claim_claims_the_first_task(fixture: Arc<Fixture>) {
    let node = fixture.node().await;
    let before = fixture
        .submit(NewTask {
            priority: 9,
            ..new_task()
        })
        .await;

    let (submitted, claimed) = fixture
        .store
        .submit_and_claim(new_task(), &claim_request(node, &[QUEUE], &[KIND], 1))
        .await
        .unwrap();

    assert_eq!(ids_of(&claimed), [before]);
    assert_eq!(fixture.task(submitted.task_id).await.status, Status::Queued);
    assert_eq!(
        ids_of(&fixture.claim(node, MANY).await),
        [submitted.task_id]
    );
}

async fn submit_and_claim_claims_nothing_from_a_paused_queue(fixture: Arc<Fixture>) {
    let node = fixture.node().await;
    fixture.store.pause_queue(&queue_name(QUEUE)).await.unwrap();
    let (submitted, claimed) = fixture
        .store
        .submit_and_claim(new_task(), &claim_request(node, &[QUEUE], &[KIND], 1))
        .await
        .unwrap();

    assert!(claimed.is_empty());
    assert_eq!(fixture.task(submitted.task_id).await.status, Status::Queued);
}

async fn submit_and_claim_for_a_lost_node_submits_nothing(fixture: Arc<Fixture>) {
    let unknown = claim_request(random_node_id(), &[QUEUE], &[KIND], 1);
    let refused = fixture.store.submit_and_claim(new_task(), &unknown).await;
    assert_eq!(refused.unwrap_err(), StoreError::NodeLost);
    let node = fixture.node().await;
    assert!(fixture.claim(node, MANY).await.is_empty());
}
