//! When progress is written to the store: the first report at once, then the newest one every five
//! seconds, and once more when it is complete (100 %).
//!
//! A node follows this rule for the tasks that it runs, and the progress collector for the tasks of
//! remote workers. Nothing here reads a clock.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use longhaul_domain::{Json, Lease, TaskId, bounds::CLAIM_BATCH};

/// How often the progress of one task is written to the store.
const TASK_WRITE_INTERVAL: Duration = Duration::from_secs(5);

/// How far the newest report of a task has come on its way to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteState {
    Unwritten,
    /// Handed to a write that has not been answered yet.
    Sent,
    Written,
}

#[derive(Debug)]
struct PendingReport {
    lease: Lease,
    progress: Json,
    state: WriteState,
    is_complete: bool,
    /// Whether a complete report was written before. A second one follows the five-second rule, so
    /// that it is not a way to write more often.
    was_complete: bool,
    written_at: Option<Instant>,
}

impl PendingReport {
    fn is_due(&self, now: Instant) -> bool {
        let is_first_complete = self.is_complete && !self.was_complete;
        self.state == WriteState::Unwritten && (self.has_rested(now) || is_first_complete)
    }

    /// Whether the last write was long enough ago for the next one.
    fn has_rested(&self, now: Instant) -> bool {
        self.written_at
            .is_none_or(|at| now.duration_since(at) >= TASK_WRITE_INTERVAL)
    }

    fn is_unwritten_complete(&self) -> bool {
        self.is_complete && self.state != WriteState::Written
    }
}

/// The newest progress of each task, on its way to the store.
#[derive(Debug, Default)]
pub struct WriteBehind(HashMap<TaskId, PendingReport>);

impl WriteBehind {
    /// Takes the newest report. Returns whether it is to be written at once.
    pub fn note(&mut self, lease: Lease, progress: Json, is_complete: bool) -> bool {
        let before = self.of_attempt(&lease);
        let is_first = before.is_none();
        let written_at = before.and_then(|before| before.written_at);
        let was_complete = before.is_some_and(|before| before.was_complete);

        let pending = PendingReport {
            lease,
            progress,
            state: WriteState::Unwritten,
            is_complete,
            was_complete,
            written_at,
        };
        self.0.insert(lease.task_id, pending);
        is_first || (is_complete && !was_complete)
    }

    /// What is to be written now, at most what one call of the store takes. The caller reports the
    /// outcome to [`Self::answered`].
    pub fn due(&mut self, now: Instant) -> Vec<(Lease, Json)> {
        let mut due = Vec::new();
        for report in self.0.values_mut().filter(|report| report.is_due(now)) {
            if due.len() == CLAIM_BATCH {
                break;
            }

            report.state = WriteState::Sent;
            report.was_complete |= report.is_complete;
            report.written_at = Some(now);
            due.push((report.lease, report.progress.clone()));
        }

        due
    }

    /// The write has succeeded or failed. A report that arrived after the write was sent waits for
    /// a write of its own.
    pub fn answered(&mut self, lease: &Lease, is_written: bool) {
        let Some(report) = self.0.get_mut(&lease.task_id) else {
            return;
        };
        if report.lease != *lease || report.state != WriteState::Sent {
            return;
        }

        if is_written {
            report.state = WriteState::Written;
        } else {
            // The write does not count: the report is due again at once.
            report.state = WriteState::Unwritten;
            report.was_complete = false;
            report.written_at = None;
        }
    }

    /// Whether this attempt has a complete report that is not known to be written.
    pub fn has_unwritten_complete(&self, lease: &Lease) -> bool {
        self.of_attempt(lease)
            .is_some_and(PendingReport::is_unwritten_complete)
    }

    /// Forgets the attempt. Returns its complete report, if that is not known to be written.
    pub fn close(&mut self, lease: &Lease) -> Option<(Lease, Json)> {
        self.of_attempt(lease)?;
        let last = self.0.remove(&lease.task_id)?;
        last.is_unwritten_complete()
            .then_some((last.lease, last.progress))
    }

    /// Forgets reports that are written and have rested, except those of attempts for which
    /// `is_needed` holds.
    pub fn forget_written(&mut self, now: Instant, is_needed: impl Fn(&Lease) -> bool) {
        self.0.retain(|_, report| {
            let is_done = report.state == WriteState::Written && report.has_rested(now);
            !is_done || is_needed(&report.lease)
        });
    }

    fn of_attempt(&self, lease: &Lease) -> Option<&PendingReport> {
        self.0
            .get(&lease.task_id)
            .filter(|report| report.lease == *lease)
    }
}

#[cfg(test)]
mod tests {
    use longhaul_domain::LeaseToken;

    use super::*;

    fn lease(attempt: u32) -> Lease {
        Lease {
            task_id: TaskId(uuid::Uuid::nil()),
            attempt,
            token: LeaseToken(uuid::Uuid::nil()),
        }
    }

    fn json(text: &str) -> Json {
        Json::parse("progress", text).unwrap()
    }

    #[test]
    fn progress_is_due_at_first_then_every_five_seconds_and_when_it_is_complete() {
        let mut pending = WriteBehind::default();
        let start = Instant::now();
        let due = |pending: &mut WriteBehind, seconds| {
            let due = pending.due(start + Duration::from_secs(seconds));
            for (lease, _) in &due {
                pending.answered(lease, true);
            }
            due.len()
        };

        assert!(pending.note(lease(1), json("1"), false));
        assert_eq!(due(&mut pending, 0), 1);
        assert!(!pending.note(lease(1), json("2"), false));
        assert_eq!(due(&mut pending, 4), 0);
        assert_eq!(due(&mut pending, 5), 1);
        assert_eq!(
            due(&mut pending, 10),
            0,
            "what has not changed is not written again"
        );

        assert!(pending.note(lease(1), json("3"), true));
        assert_eq!(due(&mut pending, 6), 1);
        for _ in 0..100 {
            assert!(!pending.note(lease(1), json("3"), true));
            assert_eq!(
                due(&mut pending, 6),
                0,
                "a repeated complete report is written like any other"
            );
        }

        assert_eq!(due(&mut pending, 11), 1);
    }

    #[test]
    fn a_complete_report_whose_write_failed_is_due_again() {
        let mut pending = WriteBehind::default();
        let now = Instant::now();
        pending.note(lease(1), json("100"), true);
        assert_eq!(pending.due(now).len(), 1);

        pending.answered(&lease(1), false);
        assert!(pending.has_unwritten_complete(&lease(1)));
        assert_eq!(pending.due(now).len(), 1, "a complete report does not wait");

        pending.answered(&lease(1), true);
        assert_eq!(
            (
                pending.has_unwritten_complete(&lease(1)),
                pending.close(&lease(1))
            ),
            (false, None)
        );
    }

    #[test]
    fn a_report_whose_write_failed_is_due_again_at_once() {
        let mut pending = WriteBehind::default();
        let now = Instant::now();
        pending.note(lease(1), json("1"), false);
        assert_eq!(pending.due(now).len(), 1);

        pending.answered(&lease(1), false);
        assert_eq!(pending.due(now).len(), 1);
        pending.answered(&lease(1), true);
        assert!(!pending.note(lease(1), json("2"), false));
        assert!(pending.due(now).is_empty());
        assert_eq!(pending.due(now + TASK_WRITE_INTERVAL).len(), 1);
    }

    #[test]
    fn an_answer_to_an_older_write_does_not_cover_a_newer_report() {
        let mut pending = WriteBehind::default();
        let now = Instant::now();
        pending.note(lease(1), json("1"), false);
        assert_eq!(pending.due(now).len(), 1);
        pending.note(lease(1), json("100"), true);

        pending.answered(&lease(1), true);
        assert!(pending.has_unwritten_complete(&lease(1)));
        assert_eq!(
            pending.close(&lease(2)),
            None,
            "the report belongs to another attempt"
        );

        assert_eq!(pending.close(&lease(1)), Some((lease(1), json("100"))));
        assert!(pending.due(now + TASK_WRITE_INTERVAL).is_empty());
    }
}
