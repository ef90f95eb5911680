//! When progress is written to the store: at first, then every five seconds, and once when it is full (R37).
//!
//! Whoever keeps progress on its way to the store goes by this: the worker for what runs on its node, and the registrar
//! for what remote workers report. Nothing here reads a clock.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use longhaul_domain::{Json, Lease, TaskId, bounds::CLAIM_BATCH};

/// How often the progress of one task is written to the store.
pub const WRITE_EVERY: Duration = Duration::from_secs(5);

/// How far the newest report of a task has come on its way to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Waiting,
    /// Handed to a write that has not answered yet.
    Sent,
    Written,
}

#[derive(Debug)]
struct Pending {
    lease: Lease,
    newest: Json,
    way: Way,
    is_full: bool,
    /// A full that comes again is as good as any other report: it must not be a way to write more often.
    was_full: bool,
    written_at: Option<Instant>,
}

impl Pending {
    fn is_due(&self, now: Instant) -> bool {
        let has_rested = self
            .written_at
            .is_none_or(|at| now.duration_since(at) >= WRITE_EVERY);
        self.way == Way::Waiting && (has_rested || (self.is_full && !self.was_full))
    }

    fn is_owed(&self) -> bool {
        self.is_full && self.way != Way::Written
    }
}

/// The newest progress of each task, on its way to the store. Holds one report of each task that somebody has not
/// forgotten.
#[derive(Debug, Default)]
pub struct PendingProgress(HashMap<TaskId, Pending>);

impl PendingProgress {
    /// Keeps the newest report. Answers whether it is to be written at once.
    pub fn note(&mut self, lease: Lease, progress: Json, is_full: bool) -> bool {
        let before = self
            .0
            .get(&lease.task_id)
            .filter(|before| before.lease == lease);
        let (written_at, was_full) =
            before.map_or((None, false), |before| (before.written_at, before.was_full));
        let pending = Pending {
            lease,
            newest: progress,
            way: Way::Waiting,
            is_full,
            was_full,
            written_at,
        };
        self.0.insert(lease.task_id, pending);
        written_at.is_none() || (is_full && !was_full)
    }

    /// What is to be written now, at most what one call takes. Tell [`Self::answered`] what became of it.
    pub fn due(&mut self, now: Instant) -> Vec<(Lease, Json)> {
        let take = |one: &mut Pending| {
            one.way = Way::Sent;
            one.was_full |= one.is_full;
            one.written_at = Some(now);
            (one.lease, one.newest.clone())
        };
        self.0
            .values_mut()
            .filter(|one| one.is_due(now))
            .take(CLAIM_BATCH)
            .map(take)
            .collect()
    }

    /// The write has answered, or has failed. What was reported meanwhile waits for its own.
    pub fn answered(&mut self, lease: &Lease, is_written: bool) {
        let is_sent = |one: &&mut Pending| one.lease == *lease && one.way == Way::Sent;
        if let Some(one) = self.0.get_mut(&lease.task_id).filter(is_sent) {
            one.way = if is_written {
                Way::Written
            } else {
                Way::Waiting
            };
            one.was_full &= is_written;
        }
    }

    /// Whether a full report of this attempt is not known to be written.
    pub fn is_owed(&self, lease: &Lease) -> bool {
        self.0
            .get(&lease.task_id)
            .is_some_and(|one| one.lease == *lease && one.is_owed())
    }

    /// Forgets the attempt, and hands out a full report that is not known to be written.
    pub fn close(&mut self, lease: &Lease) -> Option<(Lease, Json)> {
        self.0
            .get(&lease.task_id)
            .filter(|one| one.lease == *lease)?;
        let last = self.0.remove(&lease.task_id)?;
        last.is_owed().then_some((last.lease, last.newest))
    }

    /// Forgets what is written and has rested, unless somebody still needs its attempt.
    pub fn forget_written(&mut self, now: Instant, is_needed: impl Fn(&Lease) -> bool) {
        let has_rested = |one: &Pending| {
            one.written_at
                .is_none_or(|at| now.duration_since(at) >= WRITE_EVERY)
        };
        self.0
            .retain(|_, one| one.way != Way::Written || !has_rested(one) || is_needed(&one.lease));
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
    fn progress_is_due_at_first_then_every_five_seconds_and_at_the_full() {
        let (mut pending, start) = (PendingProgress::default(), Instant::now());
        let due = |pending: &mut PendingProgress, seconds| {
            let due = pending.due(start + Duration::from_secs(seconds));
            due.iter()
                .for_each(|(lease, _)| pending.answered(lease, true));
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
                "a full that is told again and again is written as any other"
            );
        }
        assert_eq!(due(&mut pending, 11), 1);
    }

    #[test]
    fn a_write_that_failed_is_owed_still() {
        let (mut pending, now) = (PendingProgress::default(), Instant::now());
        pending.note(lease(1), json("100"), true);
        assert_eq!(pending.due(now).len(), 1);
        pending.answered(&lease(1), false);
        assert!(pending.is_owed(&lease(1)));
        assert_eq!(pending.due(now).len(), 1, "a full waits for nothing");
        pending.answered(&lease(1), true);
        assert_eq!(
            (pending.is_owed(&lease(1)), pending.close(&lease(1))),
            (false, None)
        );
    }

    #[test]
    fn an_answer_to_an_older_write_does_not_cover_what_came_after_it() {
        let (mut pending, now) = (PendingProgress::default(), Instant::now());
        pending.note(lease(1), json("1"), false);
        assert_eq!(pending.due(now).len(), 1);
        pending.note(lease(1), json("100"), true);
        pending.answered(&lease(1), true);
        assert!(pending.is_owed(&lease(1)));
        assert_eq!(
            pending.close(&lease(2)),
            None,
            "another attempt is none of its business"
        );
        assert_eq!(pending.close(&lease(1)), Some((lease(1), json("100"))));
        assert!(pending.due(now + WRITE_EVERY).is_empty());
    }
}
