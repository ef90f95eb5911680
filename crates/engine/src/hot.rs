//! What this process knows of the tasks that run here before the store does, or without asking it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use longhaul_domain::{Lease, TaskId, contract::store::Verdict};

#[derive(Debug, Default)]
struct Hot {
    attempt: u32,
    progress: Option<serde_json::Value>,
    reports: u64,
    /// Writes since the claim; each has raised the version of the task's row by one.
    writes: u64,
    /// Writes without an answer: whether they have raised it is not known.
    unanswered: u64,
    /// Each child that is made or ends raises its parent's version, wherever it runs.
    has_children: bool,
}

/// Ended tasks are removed, so it holds at most what runs.
#[derive(Debug, Default)]
pub(crate) struct HotTasks(Mutex<HashMap<TaskId, Hot>>);

impl HotTasks {
    fn all(&self) -> MutexGuard<'_, HashMap<TaskId, Hot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<R>(&self, id: TaskId, attempt: u32, change: impl FnOnce(&mut Hot) -> R) -> R {
        let mut all = self.all();
        let hot = all.entry(id).or_default();
        if attempt < hot.attempt {
            // What an older one still does is nobody's news.
            return change(&mut Hot {
                attempt,
                ..Hot::default()
            });
        }
        if attempt > hot.attempt {
            *hot = Hot {
                attempt,
                ..Hot::default()
            };
        }
        change(hot)
    }

    /// A report of progress: its number in the attempt, from 1, and the writes so far.
    pub(crate) fn report(
        &self,
        id: TaskId,
        attempt: u32,
        progress: serde_json::Value,
    ) -> (u64, u64) {
        self.change(id, attempt, |hot| {
            hot.progress = Some(progress);
            hot.reports += 1;
            (hot.reports, hot.writes)
        })
    }

    pub(crate) fn progress(&self, id: TaskId) -> Option<serde_json::Value> {
        self.all().get(&id)?.progress.clone()
    }

    pub(crate) fn makes_child(&self, parent: &Lease) {
        self.change(parent.task_id, parent.attempt, |hot| {
            hot.has_children = true
        });
    }

    /// A write of this attempt is sent.
    pub(crate) fn writes(&self, lease: &Lease) {
        self.change(lease.task_id, lease.attempt, |hot| hot.unanswered += 1);
    }

    /// A write that is sent for whoever may have ended meanwhile.
    pub(crate) fn writes_if_running(&self, lease: &Lease) {
        self.change_known(lease, |hot| hot.unanswered += 1);
    }

    pub(crate) fn answered(&self, lease: &Lease, verdict: Verdict) {
        self.change_known(lease, |hot| {
            hot.unanswered = hot.unanswered.saturating_sub(1);
            hot.writes += u64::from(matches!(verdict, Verdict::Applied(_)));
        });
    }

    fn change_known(&self, lease: &Lease, change: impl FnOnce(&mut Hot)) {
        if let Some(hot) = self
            .all()
            .get_mut(&lease.task_id)
            .filter(|hot| hot.attempt == lease.attempt)
        {
            change(hot);
        }
    }

    /// By how much the attempt's writes have raised its task's version, if that is known.
    pub(crate) fn raised_by(&self, lease: &Lease) -> Option<u64> {
        match self
            .all()
            .get(&lease.task_id)
            .filter(|hot| hot.attempt == lease.attempt)
        {
            None => Some(0),
            Some(hot) if hot.unanswered > 0 || hot.has_children => None,
            Some(hot) => Some(hot.writes),
        }
    }

    /// The newest progress of this attempt or a later one.
    pub(crate) fn progress_since(&self, id: TaskId, attempt: u32) -> Option<serde_json::Value> {
        self.all()
            .get(&id)
            .filter(|hot| hot.attempt >= attempt)?
            .progress
            .clone()
    }

    /// Answers whether the attempt had reported progress. What is known of a later one stays.
    pub(crate) fn forget(&self, lease: &Lease) -> bool {
        let mut all = self.all();
        let is_over = all
            .get(&lease.task_id)
            .is_some_and(|hot| hot.attempt <= lease.attempt);
        is_over
            && all
                .remove(&lease.task_id)
                .is_some_and(|hot| hot.progress.is_some())
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
    fn writes_count_when_they_are_answered_and_until_then_nothing_is_known() {
        let (hot, first) = (HotTasks::default(), lease(1));
        assert_eq!(hot.raised_by(&first), Some(0));
        hot.writes(&first);
        assert_eq!(hot.raised_by(&first), None);
        hot.answered(&first, Verdict::Applied(Status::Running));
        hot.writes(&first);
        hot.answered(&first, Verdict::Stale(Status::Running));
        assert_eq!(hot.raised_by(&first), Some(1));
        hot.makes_child(&first);
        assert_eq!(hot.raised_by(&first), None);
        assert_eq!(
            hot.raised_by(&lease(2)),
            Some(0),
            "each attempt counts from its claim"
        );
    }

    #[test]
    fn an_attempt_that_ends_late_takes_nothing_of_its_successor() {
        let (hot, first, second) = (HotTasks::default(), lease(1), lease(2));
        hot.report(first.task_id, 1, serde_json::Value::Null);
        hot.report(first.task_id, 2, serde_json::Value::Bool(true));
        hot.report(first.task_id, 1, serde_json::Value::Null);
        assert!(!hot.forget(&first));
        assert_eq!(
            hot.progress(first.task_id),
            Some(serde_json::Value::Bool(true))
        );
        assert!(hot.forget(&second));
    }

    #[test]
    fn reports_are_numbered_and_a_late_write_leaves_nothing_behind() {
        let (hot, first) = (HotTasks::default(), lease(1));
        let report = || hot.report(first.task_id, first.attempt, serde_json::Value::Null);
        assert_eq!((report(), report()), ((1, 0), (2, 0)));
        hot.forget(&first);
        hot.writes_if_running(&first);
        hot.answered(&first, Verdict::Applied(Status::Running));
        assert!(hot.all().is_empty());
    }
}
