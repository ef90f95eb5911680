//! The tasks that run in this process: their newest progress, and by how much their attempts have
//! raised the version of the task's row.
//!
//! The version matters to listeners, who drop events that are older than what they show. A plain
//! task's version after its end follows from the claim and the writes counted here, so the store is
//! not asked for it.

use std::collections::HashMap;

use longhaul_domain::{Lease, TaskId, contract::store::Verdict};
use parking_lot::Mutex;

/// What is known of the running attempt of one task.
#[derive(Debug, Default)]
struct LiveTask {
    attempt: u32,
    progress: Option<serde_json::Value>,
    /// Reports of progress in this attempt.
    reports: u64,
    /// Writes that the store has applied since the claim. Each has raised the version by one.
    writes: u64,
    /// Writes without an answer yet: whether they have raised the version is unknown.
    unanswered: u64,
    /// Whether the attempt has made children. Each child that is made or ends raises the version,
    /// wherever it runs.
    has_children: bool,
}

/// The running tasks of this process. Ended tasks are removed. The lock is held for one look or
/// change, never across an await.
#[derive(Debug, Default)]
pub(crate) struct LiveTasks(Mutex<HashMap<TaskId, LiveTask>>);

impl LiveTasks {
    /// Changes the entry of this attempt, which is made where there is none.
    fn change<R>(&self, id: TaskId, attempt: u32, change: impl FnOnce(&mut LiveTask) -> R) -> R {
        let fresh = || LiveTask {
            attempt,
            ..LiveTask::default()
        };

        // Found and changed under one lock, because attempts of one task may report at once.
        let mut tasks = self.0.lock();
        let task = tasks.entry(id).or_insert_with(fresh);
        if attempt < task.attempt {
            // An older attempt that still runs must not change its successor's entry.
            return change(&mut fresh());
        }
        if attempt > task.attempt {
            *task = fresh();
        }

        change(task)
    }

    /// Changes the entry of this attempt, if there is one.
    fn change_existing(&self, lease: &Lease, change: impl FnOnce(&mut LiveTask)) {
        let mut tasks = self.0.lock();
        if let Some(task) = tasks.get_mut(&lease.task_id)
            && task.attempt == lease.attempt
        {
            change(task);
        }
    }

    /// Notes a report of progress. Returns its number in the attempt, from 1, and the writes of the
    /// attempt so far.
    pub(crate) fn report(
        &self,
        id: TaskId,
        attempt: u32,
        progress: serde_json::Value,
    ) -> (u64, u64) {
        self.change(id, attempt, |task| {
            task.progress = Some(progress);
            task.reports += 1;
            (task.reports, task.writes)
        })
    }

    /// The newest progress of a task.
    pub(crate) fn progress(&self, id: TaskId) -> Option<serde_json::Value> {
        self.0.lock().get(&id)?.progress.clone()
    }

    /// The newest progress of this attempt or a later one.
    pub(crate) fn progress_since(&self, id: TaskId, attempt: u32) -> Option<serde_json::Value> {
        let tasks = self.0.lock();
        let task = tasks.get(&id)?;
        if task.attempt < attempt {
            return None;
        }

        task.progress.clone()
    }

    /// Notes that the attempt makes a child.
    pub(crate) fn makes_child(&self, parent: &Lease) {
        self.change(parent.task_id, parent.attempt, |task| {
            task.has_children = true;
        });
    }

    /// Notes that a write of this attempt is sent.
    pub(crate) fn write_sent(&self, lease: &Lease) {
        self.change(lease.task_id, lease.attempt, |task| task.unanswered += 1);
    }

    /// The same for a write that is sent late: the attempt may have ended by now.
    pub(crate) fn write_sent_if_running(&self, lease: &Lease) {
        self.change_existing(lease, |task| task.unanswered += 1);
    }

    /// Notes the answer to a write.
    pub(crate) fn write_answered(&self, lease: &Lease, verdict: Verdict) {
        self.change_existing(lease, |task| {
            task.unanswered = task.unanswered.saturating_sub(1);
            task.writes += u64::from(matches!(verdict, Verdict::Applied(_)));
        });
    }

    /// By how much the attempt has raised its task's version since the claim; `None` when only the
    /// store knows.
    ///
    /// Claimed at version 4, then progress and a checkpoint written: the raise is 2, the task is at
    /// version 6, and its end makes it 7. While the checkpoint has no answer, it may be at 5 or 6.
    pub(crate) fn version_raise(&self, lease: &Lease) -> Option<u64> {
        match self.0.lock().get(&lease.task_id) {
            Some(task) if task.attempt != lease.attempt => Some(0),
            Some(task) if task.unanswered > 0 || task.has_children => None,
            Some(task) => Some(task.writes),
            None => Some(0),
        }
    }

    /// Removes the task, unless a later attempt runs. Returns whether the attempt had reported
    /// progress.
    pub(crate) fn forget(&self, lease: &Lease) -> bool {
        let mut tasks = self.0.lock();
        match tasks.get(&lease.task_id) {
            Some(task) if task.attempt <= lease.attempt => {
                let has_reported = task.progress.is_some();
                tasks.remove(&lease.task_id);
                has_reported
            }
            Some(_) | None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_domain::{LeaseToken, Status};

    use super::*;

    fn lease(attempt: u32) -> Lease {
        Lease {
            task_id: TaskId(uuid::Uuid::nil()),
            attempt,
            token: LeaseToken(uuid::Uuid::nil()),
        }
    }

    #[test]
    fn the_version_raise_is_unknown_until_every_write_is_answered() {
        let live = LiveTasks::default();
        let first = lease(1);
        assert_eq!(live.version_raise(&first), Some(0));
        live.write_sent(&first);
        assert_eq!(live.version_raise(&first), None);

        live.write_answered(&first, Verdict::Applied(Status::Running));
        live.write_sent(&first);
        live.write_answered(&first, Verdict::Stale(Status::Running));
        assert_eq!(live.version_raise(&first), Some(1));

        live.makes_child(&first);
        assert_eq!(live.version_raise(&first), None);
        assert_eq!(
            live.version_raise(&lease(2)),
            Some(0),
            "each attempt counts from its claim"
        );
    }

    #[test]
    fn a_late_end_of_an_older_attempt_keeps_the_progress_of_its_successor() {
        let live = LiveTasks::default();
        let first = lease(1);
        let second = lease(2);
        live.report(first.task_id, 1, serde_json::Value::Null);
        live.report(first.task_id, 2, serde_json::Value::Bool(true));
        live.report(first.task_id, 1, serde_json::Value::Null);

        assert!(!live.forget(&first));
        assert_eq!(
            live.progress(first.task_id),
            Some(serde_json::Value::Bool(true))
        );
        assert!(live.forget(&second));
    }

    #[test]
    fn reports_are_numbered_and_a_late_write_leaves_no_entry() {
        let live = LiveTasks::default();
        let first = lease(1);
        let report = || live.report(first.task_id, first.attempt, serde_json::Value::Null);
        assert_eq!((report(), report()), ((1, 0), (2, 0)));

        live.forget(&first);
        live.write_sent_if_running(&first);
        live.write_answered(&first, Verdict::Applied(Status::Running));
        assert!(live.0.lock().is_empty());
    }
}
