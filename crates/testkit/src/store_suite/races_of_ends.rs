//! Races to end a task: finish against cancel, rescue and finish, and children against parents.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use longhaul_domain::{
    ChildCounts, Lease, NewTask, Status, TaskId, TaskRecord,
    contract::store::{Access, AttemptReport, Verdict},
    event::EventSelection,
    event::{EventKind, OutboxPolicy, Topic},
};

use super::{
    case::{Case, cases},
    races::{Racer, at_once},
    support::{MANY, completed, fatal, ids_of, lease_of, new_task},
};
use crate::fixture::Fixture;

pub(super) fn cases() -> Vec<Case> {
    let with_events = cases![
        a_thousand_concurrent_children_end_their_parent_once,
        a_parent_that_ends_with_its_children_ends_once,
    ];
    let publishing = |case: Case| {
        case.with_outbox(OutboxPolicy {
            events: EventSelection::everything(),
            dead_letters: false,
        })
    };

    let mut all: Vec<Case> = with_events.into_iter().map(publishing).collect();
    all.extend(cases![
        either_a_cancel_or_a_finish_wins,
        a_parent_cancelled_while_its_children_end_leaves_nothing_open,
        one_of_many_cancels_gets_each_move_of_a_family,
        either_a_rescue_or_a_finish_wins,
        either_a_hand_back_of_strays_or_a_finish_wins,
        many_rescuers_rescue_each_task_once,
        two_nodes_that_report_the_same_ends_both_get_verdicts,
    ]);

    all
}

async fn running_tasks(fixture: &Fixture, count: usize) -> Vec<TaskRecord> {
    fixture.submit_all(vec![new_task(); count]).await;
    let node = fixture.node().await;
    let claimed = fixture.claim(node, count).await;
    assert_eq!(claimed.len(), count);
    claimed
}

fn reports_of(leases: &[Lease], ends_well: impl Fn(usize) -> bool) -> Vec<AttemptReport> {
    let report = |(index, lease): (usize, &Lease)| {
        let outcome = if ends_well(index) {
            completed()
        } else {
            fatal()
        };

        AttemptReport {
            lease: *lease,
            end: outcome,
        }
    };

    leases.iter().enumerate().map(report).collect()
}

/// A running parent and its running children.
async fn running_family(fixture: &Fixture, children: usize) -> (Lease, Vec<Lease>) {
    let parent = fixture.start(new_task()).await;
    let child = NewTask {
        task_type: "child".into(),
        ..new_task()
    };

    fixture.submit_children(parent, vec![child; children]).await;
    let node = fixture.node().await;
    let claimed = fixture
        .claim_from(node, &["lane"], &["child"], children)
        .await;

    assert_eq!(claimed.len(), children);
    (parent, claimed.iter().map(lease_of).collect())
}

async fn a_thousand_concurrent_children_end_their_parent_once(fixture: Arc<Fixture>) {
    let (parent, children) = running_family(&fixture, 1_000).await;
    fixture.finish(parent, completed()).await;
    let reports = reports_of(&children, |index| index % 4 != 0);

    // Batches of different sizes that overlap in time, from 1 to 64 reports.
    let mut batches = Vec::new();
    let mut rest = reports.as_slice();
    while !rest.is_empty() {
        let (batch, later) = rest.split_at((1 + batches.len() * 7 % 64).min(rest.len()));
        batches.push(batch.to_vec());
        rest = later;
    }

    let finishes = batches.into_iter().map(|batch| {
        let fixture = Arc::clone(&fixture);
        async move { fixture.finish_all(batch).await }
    });
    let verdicts: Vec<Verdict> = at_once(finishes).await.concat();

    assert!(
        verdicts
            .iter()
            .all(|verdict| matches!(verdict, Verdict::Applied(_)))
    );
    let task = fixture.task(parent.task_id).await;

    assert_eq!(task.status, Status::CompletedWithErrors);
    assert_eq!(
        task.children,
        ChildCounts {
            total: 1_000,
            completed: 750,
            failed: 250,
            ..ChildCounts::default()
        }
    );

    assert_ends(&fixture, &BTreeMap::from([(parent.task_id, 1)])).await;
}

async fn a_parent_that_ends_with_its_children_ends_once(fixture: Arc<Fixture>) {
    let mut racers: Vec<Racer<Vec<Verdict>>> = Vec::new();
    let mut parents = BTreeMap::new();
    for _ in 0..20 {
        let (parent, children) = running_family(&fixture, 6).await;
        parents.insert(parent.task_id, 1);
        for lease in children.into_iter().chain([parent]) {
            let fixture = Arc::clone(&fixture);
            racers.push(Box::pin(async move {
                vec![fixture.finish(lease, completed()).await]
            }));
        }
    }

    let verdicts = at_once(racers).await.concat();
    assert!(
        verdicts
            .iter()
            .all(|verdict| matches!(verdict, Verdict::Applied(_)))
    );

    for parent in parents.keys() {
        assert_eq!(fixture.status(*parent).await, Status::Completed);
    }

    assert_ends(&fixture, &parents).await;
}

/// Asserts how many events report the end of each task.
async fn assert_ends(fixture: &Fixture, expected: &BTreeMap<TaskId, usize>) {
    let mut ends: BTreeMap<TaskId, usize> = BTreeMap::new();
    for leased in fixture.drain_outbox().await {
        let message = leased.message;
        let ended = matches!(
            message.body.event,
            EventKind::Completed | EventKind::Failed | EventKind::Cancelled
        );
        if ended && message.topic == Topic::Event && expected.contains_key(&message.task_id) {
            *ends.entry(message.task_id).or_default() += 1;
        }
    }

    assert_eq!(&ends, expected, "a parent ends exactly once");
}

async fn either_a_cancel_or_a_finish_wins(fixture: Arc<Fixture>) {
    let tasks = running_tasks(&fixture, 200).await;
    let mut racers: Vec<Racer<Answer>> = Vec::new();
    for task in &tasks {
        let lease = lease_of(task);
        let finisher = Arc::clone(&fixture);
        let canceller = Arc::clone(&fixture);
        let finish = async move { Answer::Finish(finisher.finish(lease, completed()).await) };

        let cancel = async move {
            Answer::Cancel(
                canceller
                    .store
                    .cancel_task(&Access::All, lease.task_id)
                    .await
                    .unwrap()
                    .status,
            )
        };

        // The order of the two alternates.
        if task.id.0.as_u128() % 2 == 0 {
            racers.push(Box::pin(finish));
            racers.push(Box::pin(cancel));
        } else {
            racers.push(Box::pin(cancel));
            racers.push(Box::pin(finish));
        }
    }

    let answers = at_once(racers).await;
    for (task, pair) in tasks.iter().zip(answers.chunks(2)) {
        let after = fixture.task(task.id).await;
        let (verdict, returned) = match (pair[0], pair[1]) {
            (Answer::Finish(verdict), Answer::Cancel(returned))
            | (Answer::Cancel(returned), Answer::Finish(verdict)) => (verdict, returned),
            other => panic!("one of each raced: {other:?}"),
        };

        assert_eq!(
            returned, after.status,
            "the cancel returns the final status"
        );
        match verdict {
            Verdict::Applied(Status::Completed) => assert_eq!(after.status, Status::Completed),
            Verdict::Stale(Status::Cancelled) => {
                assert_eq!(
                    (after.status, after.result),
                    (Status::Cancelled, None),
                    "there is no result"
                );
            }
            Verdict::Applied(_) | Verdict::Stale(_) | Verdict::Repeated(_) | Verdict::Missing => {
                panic!("a finish counts or comes too late: {verdict:?}")
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Answer {
    Finish(Verdict),
    Cancel(Status),
}

async fn a_parent_cancelled_while_its_children_end_leaves_nothing_open(fixture: Arc<Fixture>) {
    let mut racers: Vec<Racer<Vec<(TaskId, Verdict)>>> = Vec::new();
    for _ in 0..20 {
        let (parent, children) = running_family(&fixture, 8).await;
        fixture.finish(parent, completed()).await;
        for batch in children.chunks(3) {
            let fixture = Arc::clone(&fixture);
            let reports = reports_of(batch, |index| index == 0);
            racers.push(Box::pin(async move {
                let verdicts = fixture.finish_all(reports.clone()).await;
                reports
                    .iter()
                    .map(|report| report.lease.task_id)
                    .zip(verdicts)
                    .collect()
            }));
        }

        let fixture = Arc::clone(&fixture);
        racers.push(Box::pin(async move {
            fixture
                .store
                .cancel_task(&Access::All, parent.task_id)
                .await
                .unwrap();
            vec![]
        }));
    }

    for (id, verdict) in at_once(racers).await.concat() {
        let status = fixture.status(id).await;
        match verdict {
            Verdict::Applied(returned) => {
                assert_eq!(status, returned, "an applied report is final")
            }
            Verdict::Stale(returned) => {
                assert_eq!((status, returned), (Status::Cancelled, Status::Cancelled))
            }
            Verdict::Repeated(_) | Verdict::Missing => panic!("{verdict:?}"),
        }
    }

    for task in fixture.all_tasks().await {
        assert!(
            task.status.is_ended(),
            "{} is still {:?}",
            task.id,
            task.status
        );
    }
}

async fn one_of_many_cancels_gets_each_move_of_a_family(fixture: Arc<Fixture>) {
    let mut racers: Vec<Racer<Vec<TaskId>>> = Vec::new();
    for _ in 0..20 {
        let (parent, children) = running_family(&fixture, 4).await;
        fixture.finish(parent, completed()).await;

        // Three cancel the parent, and one cancels each child.
        let ids = [parent.task_id; 3]
            .into_iter()
            .chain(children.iter().map(|lease| lease.task_id));
        for id in ids {
            let fixture = Arc::clone(&fixture);
            racers.push(Box::pin(async move {
                let done = fixture.store.cancel_task(&Access::All, id).await.unwrap();
                assert!(done.status.is_ended(), "{:?}", done.status);
                done.moved.iter().map(|one| one.task.id).collect()
            }));
        }
    }

    let mut returned = at_once(racers).await.concat();
    returned.sort();
    let mut tasks: Vec<TaskId> = fixture
        .all_tasks()
        .await
        .iter()
        .map(|task| task.id)
        .collect();

    tasks.sort();
    assert_eq!(returned, tasks, "each end is returned once");
}

/// The verdict of a finisher. A rescuer has none.
type Verdicts = Vec<(TaskId, Option<Verdict>)>;

async fn either_a_rescue_or_a_finish_wins(fixture: Arc<Fixture>) {
    let tasks = running_tasks(&fixture, 200).await;
    fixture
        .store
        .retire_node(tasks[0].node_id.unwrap())
        .await
        .unwrap();
    let leases: Vec<Lease> = tasks.iter().map(lease_of).collect();
    let mut racers: Vec<Racer<Verdicts>> = Vec::new();
    for batch in leases.chunks(10) {
        let fixture = Arc::clone(&fixture);
        let reports = reports_of(batch, |_| true);
        racers.push(Box::pin(async move {
            let verdicts = fixture.finish_all(reports.clone()).await;
            reports
                .iter()
                .map(|report| report.lease.task_id)
                .zip(verdicts.into_iter().map(Some))
                .collect()
        }));
    }
    let rescuer = Arc::clone(&fixture);
    let rescue = async move {
        rescuer
            .rescue(5)
            .await
            .requeued
            .into_iter()
            .map(|id| (id, None))
            .collect()
    };
    racers.insert(racers.len() / 2, Box::pin(rescue));
    let answers = at_once(racers).await.concat();
    let rescued: BTreeSet<TaskId> = answers
        .iter()
        .filter(|(_, verdict)| verdict.is_none())
        .map(|(id, _)| *id)
        .collect();
    for (id, verdict) in answers
        .into_iter()
        .filter_map(|(id, verdict)| Some((id, verdict?)))
    {
        let task = fixture.task(id).await;
        let expected = if rescued.contains(&id) {
            (Verdict::Stale(Status::Queued), Status::Queued, 1)
        } else {
            (Verdict::Applied(Status::Completed), Status::Completed, 0)
        };
        assert_eq!((verdict, task.status, task.crash_count), expected);
    }
}

async fn either_a_hand_back_of_strays_or_a_finish_wins(fixture: Arc<Fixture>) {
    let tasks = running_tasks(&fixture, 200).await;
    let node = tasks[0].node_id.unwrap();
    let leases: Vec<Lease> = tasks.iter().map(lease_of).collect();
    let mut racers: Vec<Racer<Verdicts>> = Vec::new();
    for batch in leases.chunks(10) {
        let fixture = Arc::clone(&fixture);
        let reports = reports_of(batch, |_| true);
        racers.push(Box::pin(async move {
            let verdicts = fixture.finish_all(reports.clone()).await;
            reports
                .iter()
                .map(|report| report.lease.task_id)
                .zip(verdicts.into_iter().map(Some))
                .collect()
        }));
    }
    // Two hand-backs race with each other too. Half of the leases are known and stay.
    for place in [5, 10] {
        let fixture = Arc::clone(&fixture);
        let known = leases[..100].to_vec();
        racers.insert(
            place,
            Box::pin(async move {
                let strays = fixture
                    .store
                    .hand_back_strays(node, &known, 0)
                    .await
                    .unwrap();
                strays.into_iter().map(|id| (id, None)).collect()
            }),
        );
    }
    let answers = at_once(racers).await.concat();
    let handed_back: Vec<TaskId> = answers
        .iter()
        .filter(|(_, returned)| returned.is_none())
        .map(|(id, _)| *id)
        .collect();
    let once: BTreeSet<TaskId> = handed_back.iter().copied().collect();
    assert_eq!(
        once.len(),
        handed_back.len(),
        "each stray is handed back once"
    );
    assert!(
        leases[..100]
            .iter()
            .all(|lease| !once.contains(&lease.task_id)),
        "known leases are not strays"
    );
    for (id, verdict) in answers
        .into_iter()
        .filter_map(|(id, verdict)| Some((id, verdict?)))
    {
        let expected = if once.contains(&id) {
            (Verdict::Stale(Status::Queued), Status::Queued)
        } else {
            (Verdict::Applied(Status::Completed), Status::Completed)
        };
        assert_eq!((verdict, fixture.status(id).await), expected);
    }
}

async fn many_rescuers_rescue_each_task_once(fixture: Arc<Fixture>) {
    let mut expected = BTreeSet::new();
    for _ in 0..4 {
        let tasks = running_tasks(&fixture, 50).await;
        fixture
            .store
            .retire_node(tasks[0].node_id.unwrap())
            .await
            .unwrap();
        expected.extend(ids_of(&tasks));
    }

    let rescuers = (0..6).map(|_| {
        let fixture = Arc::clone(&fixture);
        async move { fixture.rescue(5).await.requeued }
    });
    let mut rescued = at_once(rescuers).await.concat();

    // A rescuer skips rows that another one has locked; the next pass finds the rest.
    rescued.extend(fixture.rescue(5).await.requeued);
    assert_eq!(rescued.len(), expected.len(), "each task is rescued once");
    assert_eq!(BTreeSet::from_iter(rescued), expected);
    assert!(
        fixture
            .all_tasks()
            .await
            .iter()
            .all(|task| task.crash_count == 1 && task.status == Status::Queued)
    );
}

async fn two_nodes_that_report_the_same_ends_both_get_verdicts(fixture: Arc<Fixture>) {
    let tasks = running_tasks(&fixture, MANY).await;
    let leases: Vec<Lease> = tasks.iter().map(lease_of).collect();
    let forwards = reports_of(&leases, |_| true);
    let backwards: Vec<AttemptReport> = forwards.iter().rev().cloned().collect();
    let finishes = [forwards, backwards].map(|reports| {
        let fixture = Arc::clone(&fixture);
        async move { fixture.finish_all(reports).await }
    });
    let mut answers = at_once(finishes).await;

    answers[1].reverse();
    for (one, other) in answers[0].iter().zip(&answers[1]) {
        let applied = [one, other]
            .into_iter()
            .filter(|verdict| **verdict == Verdict::Applied(Status::Completed));
        assert_eq!(applied.count(), 1, "one report counts: {one:?}, {other:?}");
        assert!(
            one.is_accepted() && other.is_accepted(),
            "and the other is answered as repeated"
        );
    }
}
