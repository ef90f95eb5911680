//! What holds for every task at any time. The suite checks it after each case.

use std::collections::BTreeMap;

use longhaul_domain::{
    ChildCounts, Status, TaskId, TaskRecord,
    statistics::{CountFilter, CountSheet, Measure},
};

use crate::fixture::Fixture;

/// Attempts are read task by task. Above this many tasks a sample is checked.
const TASKS_WITH_ATTEMPTS: usize = 100;

/// Checks all tasks that a case left behind.
pub(super) async fn check(fixture: &Fixture) {
    let tasks = fixture.all_tasks().await;
    assert!(
        tasks.windows(2).all(|pair| pair[0].id < pair[1].id),
        "a list is sorted by id"
    );
    tasks.iter().for_each(check_task);
    check_counters(&tasks);
    check_task_counts(fixture, &tasks).await;

    for task in tasks.iter().take(TASKS_WITH_ATTEMPTS) {
        check_attempts(fixture, task).await;
    }
}

fn check_task(task: &TaskRecord) {
    let TaskRecord { id, status, .. } = task;
    assert_eq!(
        task.finished_at.is_some(),
        status.is_ended(),
        "{id} is {status:?}: exactly ended tasks have an end time"
    );
    assert!(task.version >= 1, "{id} has a version");
    assert!(
        task.updated_at >= task.created_at,
        "{id} was changed before it was submitted"
    );

    if *status == Status::Running {
        let has_lease =
            task.lease_token.is_some() && task.node_id.is_some() && task.last_attempt_at.is_some();
        assert!(
            has_lease && task.attempt > 0,
            "{id} is running without a lease"
        );
    }

    if *status == Status::Waiting {
        assert!(task.children.open() > 0, "{id} waits without an open child");
    }

    if *status == Status::Cancelled {
        assert!(
            task.result.is_none() && task.result_url.is_none(),
            "{id} was cancelled but has a result"
        );
    }
}

/// A parent's counters equal the count of its children by state.
fn check_counters(tasks: &[TaskRecord]) {
    let mut counted: BTreeMap<TaskId, ChildCounts> = BTreeMap::new();
    for child in tasks {
        let Some(parent) = child.parent_id else {
            continue;
        };
        let counts = counted.entry(parent).or_default();
        counts.total += 1;

        match child.status {
            Status::Completed => counts.completed += 1,
            Status::CompletedWithErrors => counts.with_errors += 1,
            Status::Failed | Status::DeadLetter => counts.failed += 1,
            Status::Cancelled => counts.cancelled += 1,
            Status::Queued | Status::Running | Status::Retrying | Status::Waiting => {}
        }
    }

    for task in tasks {
        let recount = counted.remove(&task.id).unwrap_or_default();
        assert_eq!(
            task.children, recount,
            "the counters of {} differ from its children",
            task.id
        );
    }

    assert!(counted.is_empty(), "children without parent: {counted:?}");
}

/// The current task counts equal a recount of the rows.
pub(super) async fn check_task_counts(fixture: &Fixture, tasks: &[TaskRecord]) {
    let counts = fixture
        .store
        .read_task_counts(&CountFilter::default())
        .await
        .unwrap();

    assert!(
        counts.windows(2).all(|pair| pair[0].key < pair[1].key),
        "task counts are sorted by key"
    );
    assert!(
        counts
            .iter()
            .all(|task_count| task_count.key.measure == Measure::Status),
        "current counts are by status only"
    );

    let mut recount = CountSheet::default();
    tasks
        .iter()
        .for_each(|task| recount.count(&task.queue, &task.task_type, task.status, 1));
    assert_eq!(
        counts,
        recount.into_task_counts(),
        "the task counts differ from the rows"
    );
}

async fn check_attempts(fixture: &Fixture, task: &TaskRecord) {
    let attempts = fixture.attempts(task.id).await;
    let numbers: Vec<u32> = attempts.iter().map(|attempt| attempt.attempt).collect();
    let all: Vec<u32> = (1..=task.attempt).collect();
    assert_eq!(numbers, all, "{} lists each of its attempts once", task.id);
}
