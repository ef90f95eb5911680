//! What holds for every task at every moment. The suite looks after each case, whatever the case was about.

use std::collections::BTreeMap;

use longhaul_domain::{
    ChildCounts, Status, Task, TaskId,
    statistics::{Measure, TallyFilter, TallySheet},
};

use crate::fixture::Fixture;

/// Attempts are read task by task; above this many tasks a sample is enough.
const TASKS_WITH_ATTEMPTS: usize = 100;

/// Looks at everything that a case left behind.
pub(super) async fn check(fixture: &Fixture) {
    let tasks = fixture.all_tasks().await;
    assert!(
        tasks.windows(2).all(|pair| pair[0].id < pair[1].id),
        "a list by age grows by id"
    );
    tasks.iter().for_each(check_task);
    check_counters(&tasks);
    check_tallies(fixture, &tasks).await;
    for task in tasks.iter().take(TASKS_WITH_ATTEMPTS) {
        check_attempts(fixture, task).await;
    }
}

fn check_task(task: &Task) {
    let Task { id, status, .. } = task;
    assert_eq!(
        task.finished_at.is_some(),
        status.is_ended(),
        "{id} is {status:?}: an end has its time"
    );
    assert!(task.version >= 1, "{id} has a version");
    assert!(
        task.updated_at >= task.created_at,
        "{id} was not changed before it was made"
    );
    if *status == Status::Running {
        let held =
            task.lease_token.is_some() && task.node_id.is_some() && task.last_attempt_at.is_some();
        assert!(
            held && task.attempt > 0,
            "{id} is running in somebody's hands"
        );
    }
    if *status == Status::Waiting {
        assert!(task.children.open() > 0, "{id} waits for somebody");
    }
    if *status == Status::Cancelled {
        assert!(
            task.result.is_none() && task.result_url.is_none(),
            "{id} was cancelled and has no result"
        );
    }
}

/// A parent's counters equal the count of its children by state.
fn check_counters(tasks: &[Task]) {
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
            "the counters of {} equal its children",
            task.id
        );
    }
    assert!(
        counted.is_empty(),
        "no child is without its parent: {counted:?}"
    );
}

/// The tallies of the present equal a recount of the rows.
pub(super) async fn check_tallies(fixture: &Fixture, tasks: &[Task]) {
    let told = fixture
        .store
        .read_tallies(&TallyFilter::default())
        .await
        .unwrap();
    assert!(
        told.windows(2).all(|pair| pair[0].key < pair[1].key),
        "tallies are sorted by key"
    );
    assert!(
        told.iter()
            .all(|tally| tally.key.measure == Measure::Status),
        "the present knows only statuses"
    );
    let mut recount = TallySheet::default();
    tasks
        .iter()
        .for_each(|task| recount.count(&task.queue, &task.task_type, task.status, 1));
    assert_eq!(told, recount.into_tallies(), "the tallies equal the rows");
}

async fn check_attempts(fixture: &Fixture, task: &Task) {
    let attempts = fixture.attempts(task.id).await;
    let numbers: Vec<u32> = attempts.iter().map(|attempt| attempt.attempt).collect();
    let all: Vec<u32> = (1..=task.attempt).collect();
    assert_eq!(numbers, all, "{} lists each of its attempts once", task.id);
}
