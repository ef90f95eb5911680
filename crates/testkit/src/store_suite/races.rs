//! Races for what only one can get: a task, a key, a maintenance lease, a message.

use std::{
    collections::{BTreeSet, HashSet},
    future::Future,
    sync::Arc,
};

use futures::future::BoxFuture;
use longhaul_domain::{
    Idempotency, NewTask, NodeId, Status, StoreError, TaskId,
    contract::store::{Access, BulkChange, BulkRequest, RetryScope, Submitted},
    event::OutboxPolicy,
    filter::TaskFilter,
};

use super::{
    case::{Case, cases},
    support::{HOUR_MS, KIND, MANY, QUEUE, claim_request, fatal, new_task},
};
use crate::fixture::Fixture;

pub(super) fn cases() -> Vec<Case> {
    let mut all = cases![
        thirty_two_claimers_take_each_of_ten_thousand_tasks_once,
        sixty_four_submits_of_one_key_make_one_task,
        one_of_two_bodies_under_one_key_wins,
        each_task_is_either_claimed_or_cancelled_in_bulk,
        a_maintenance_lease_has_one_holder,
        a_dead_letter_is_retried_once,
        children_submitted_at_once_are_all_counted,
    ];

    let with_events = |case: Case| case.with_outbox(OutboxPolicy::everything());
    all.extend(
        cases![relays_share_the_messages_between_them]
            .into_iter()
            .map(with_events),
    );

    all
}

/// The common type of different racers, so that they fit in one list.
pub(super) type Racer<T> = BoxFuture<'static, T>;

/// Runs all racers concurrently. Returns their answers in order.
pub(super) async fn at_once<T: Send + 'static>(
    racers: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<T> {
    let racers: Vec<_> = racers.into_iter().map(tokio::spawn).collect();
    let mut answers = Vec::with_capacity(racers.len());
    for racer in racers {
        answers.push(racer.await.expect("no racer panics"));
    }
    answers
}

async fn thirty_two_claimers_take_each_of_ten_thousand_tasks_once(fixture: Arc<Fixture>) {
    let ids = fixture.submit_all(vec![new_task(); 10_000]).await;
    let claimers = (0..32).map(|number: usize| {
        let fixture = Arc::clone(&fixture);
        async move {
            let node = fixture.node().await;
            let mut taken = Vec::new();
            for round in 0.. {
                let claimed = fixture
                    .claim(node, 1 + (number * 31 + round * 17) % 200)
                    .await;
                if claimed.is_empty() {
                    break;
                }

                assert!(
                    claimed
                        .iter()
                        .all(|task| task.node_id == Some(node) && task.attempt == 1)
                );
                taken.extend(claimed.into_iter().map(|task| task.id));
            }

            taken
        }
    });

    let taken: Vec<TaskId> = at_once(claimers).await.concat();
    assert_eq!(taken.len(), ids.len(), "each task is taken once");
    assert_eq!(
        BTreeSet::from_iter(taken),
        BTreeSet::from_iter(ids),
        "no task is missed"
    );
    let tasks = fixture.all_tasks().await;

    assert!(
        tasks
            .iter()
            .all(|task| task.status == Status::Running && task.attempt == 1)
    );
    let tokens: HashSet<_> = tasks.iter().map(|task| task.lease_token.unwrap()).collect();

    assert_eq!(tokens.len(), tasks.len(), "each lease has its own token");
}

fn keyed(digest: u8) -> NewTask {
    let idempotency = Some(Idempotency {
        key: "order-1".to_owned(),
        digest: [digest; 32],
        ttl_ms: HOUR_MS,
    });

    NewTask {
        idempotency,
        ..new_task()
    }
}

async fn submit_at_once(
    fixture: &Arc<Fixture>,
    digests: Vec<u8>,
) -> Vec<Result<Submitted, StoreError>> {
    let submits = digests.into_iter().map(|digest| {
        let fixture = Arc::clone(fixture);
        async move { fixture.store.submit_task(keyed(digest)).await }
    });
    at_once(submits).await
}

async fn sixty_four_submits_of_one_key_make_one_task(fixture: Arc<Fixture>) {
    let answers = submit_at_once(&fixture, vec![1; 64]).await;
    let answers: Vec<Submitted> = answers.into_iter().map(Result::unwrap).collect();
    assert!(
        answers
            .iter()
            .all(|answer| answer.task_id == answers[0].task_id),
        "all answers name the same task"
    );

    assert_eq!(
        answers.iter().filter(|answer| !answer.repeated).count(),
        1,
        "one submit created it"
    );
    assert_eq!(fixture.all_tasks().await.len(), 1);
}

async fn one_of_two_bodies_under_one_key_wins(fixture: Arc<Fixture>) {
    let digests: Vec<u8> = (0..64).map(|number| number % 2).collect();
    let answers = submit_at_once(&fixture, digests.clone()).await;
    let made = answers
        .iter()
        .position(|answer| matches!(answer, Ok(submitted) if !submitted.repeated));
    let winner = digests[made.expect("one submit created the task")];

    for (answer, digest) in answers.iter().zip(digests) {
        match answer {
            Ok(_) => assert_eq!(digest, winner, "only the winner's body is accepted"),
            Err(StoreError::IdempotencyMismatch) => {
                assert_ne!(digest, winner, "the winner's body is never refused")
            }
            Err(error) => panic!("{error}"),
        }
    }

    assert_eq!(fixture.all_tasks().await.len(), 1);
}

async fn each_task_is_either_claimed_or_cancelled_in_bulk(fixture: Arc<Fixture>) {
    fixture.submit_all(vec![new_task(); 600]).await;
    let mut racers: Vec<Racer<(Vec<TaskId>, usize)>> = Vec::new();
    for _ in 0..8 {
        let fixture = Arc::clone(&fixture);
        racers.push(Box::pin(async move {
            let node = fixture.node().await;
            let mut taken = Vec::new();
            for _ in 0..10 {
                taken.extend(fixture.claim(node, 7).await.into_iter().map(|task| task.id));
            }
            (taken, 0)
        }));
    }

    let canceller = Arc::clone(&fixture);
    racers.push(Box::pin(async move {
        (vec![], cancel_all_queued(&canceller).await)
    }));
    let answers = at_once(racers).await;
    let cancelled: usize = answers.iter().map(|(_, cancelled)| cancelled).sum();
    let taken: BTreeSet<TaskId> = answers.into_iter().flat_map(|(taken, _)| taken).collect();
    let tasks = fixture.all_tasks().await;

    for task in &tasks {
        let expected = if taken.contains(&task.id) {
            Status::Running
        } else {
            Status::Cancelled
        };

        assert_eq!(
            task.status, expected,
            "a task is claimed or cancelled, never both"
        );
    }

    assert_eq!(
        cancelled,
        tasks.len() - taken.len(),
        "the bulk change counts its changes"
    );
}

async fn cancel_all_queued(fixture: &Fixture) -> usize {
    let filter = TaskFilter {
        statuses: vec![Status::Queued],
        ..TaskFilter::default()
    };

    let mut request = BulkRequest {
        access: Access::All,
        filter,
        change: BulkChange::Cancel,
        spared: Vec::new(),
        after: None,
        limit: 50,
    };

    let mut changed = 0;
    loop {
        let step = fixture.store.change_tasks(&request).await.unwrap();
        changed += step.changed;
        match step.next {
            Some(last) => request.after = Some(last),
            None => return changed,
        }
    }
}

async fn a_maintenance_lease_has_one_holder(fixture: Arc<Fixture>) {
    for epoch in 1..=3 {
        let takers = (0..32).map(|_| {
            let fixture = Arc::clone(&fixture);
            async move {
                let node: NodeId = fixture.node().await;
                fixture
                    .store
                    .take_maintenance_lease("relay", node, HOUR_MS)
                    .await
                    .unwrap()
                    .map(|lease| (lease, node))
            }
        });

        let holders: Vec<_> = at_once(takers).await.into_iter().flatten().collect();
        assert_eq!(holders.len(), 1, "one node holds the job");
        let (lease, node) = &holders[0];
        assert_eq!(
            (lease.node_id, lease.epoch),
            (*node, epoch),
            "each new holder increments the epoch"
        );
        fixture.clock.advance_ms(2 * HOUR_MS);
    }
}

async fn a_dead_letter_is_retried_once(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    fixture.finish(lease, fatal()).await;
    let version = fixture.task(lease.task_id).await.version;

    let retries = (0..16).map(|_| {
        let fixture = Arc::clone(&fixture);
        async move {
            fixture
                .store
                .retry_task(&Access::All, lease.task_id, RetryScope::Task)
                .await
        }
    });

    let answers = at_once(retries).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer, Ok(()) | Err(StoreError::Refused(_)))),
        "{answers:?}"
    );

    assert_eq!(fixture.task(lease.task_id).await.version, version + 1);
}

async fn children_submitted_at_once_are_all_counted(fixture: Arc<Fixture>) {
    let parent = fixture.start(new_task()).await;
    let submits = (0..16).map(|_| {
        let fixture = Arc::clone(&fixture);
        async move { fixture.submit_children(parent, vec![new_task(); 20]).await }
    });
    let children: BTreeSet<TaskId> = at_once(submits).await.into_iter().flatten().collect();

    assert_eq!(children.len(), 320);
    assert_eq!(fixture.task(parent.task_id).await.children.total, 320);
}

async fn relays_share_the_messages_between_them(fixture: Arc<Fixture>) {
    fixture.submit_all(vec![new_task(); 300]).await;
    let relays = (0..8).map(|_| {
        let fixture = Arc::clone(&fixture);
        async move {
            let mut ids = Vec::new();
            loop {
                let leased = fixture.store.lease_outbox(13, HOUR_MS).await.unwrap();
                if leased.is_empty() {
                    return ids;
                }

                assert!(
                    leased.iter().all(|message| message.tries == 1),
                    "the message had no holder before"
                );
                ids.extend(leased.into_iter().map(|message| message.id));
            }
        }
    });

    let leased: Vec<i64> = at_once(relays).await.concat();
    assert_eq!(leased.len(), 300, "each event is leased to one relay");
    assert_eq!(BTreeSet::from_iter(leased).len(), 300);
    let node = fixture.node().await;
    let claimed = fixture
        .store
        .claim_tasks(&claim_request(node, &[QUEUE], &[KIND], MANY))
        .await
        .unwrap();

    assert_eq!(claimed.len(), 300);
}
