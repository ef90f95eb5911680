//! Expire: a maintenance job ends tasks past their deadline, and fails attempts that are hung.

use super::{Command, Refusal, Transition, admit, fail};
use crate::{
    attempt::AttemptEndKind,
    task::{Status, TaskError, TaskRecord},
    time::Timestamp,
};

/// When a running attempt counts as hung, although its node lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overdue {
    /// No progress, checkpoint or other change for this long, in milliseconds.
    pub silent_ms: u64,
    /// How long past the attempt's own timeout its node has to end it, in milliseconds.
    pub timeout_grace_ms: u64,
}

impl Overdue {
    /// Whether the running attempt of `task` counts as hung at `now`.
    pub fn holds_for(&self, task: &TaskRecord, now: Timestamp) -> bool {
        let silent = task.updated_at.plus_ms(self.silent_ms) <= now;
        let timeout_ms = task
            .timeout_ms
            .map(|ms| ms.saturating_add(self.timeout_grace_ms));
        let past_timeout = timeout_ms
            .zip(task.last_attempt_at)
            .is_some_and(|(ms, start)| start.plus_ms(ms) <= now);

        task.status == Status::Running && (silent || past_timeout)
    }
}

/// The task ended at `now` because its deadline passed; refused while it has not.
pub fn decide_deadline(task: &TaskRecord, now: Timestamp) -> Result<Transition, Refusal> {
    admit(task, Command::Expire)?;
    if task.deadline_at.is_none_or(|deadline| deadline > now) {
        return Err(Refusal::NotDue);
    }

    let error = TaskError::new(
        "deadline",
        "the task's deadline passed",
        None,
        now,
        task.attempt,
    );

    Ok(without_token(fail::charge(
        task,
        AttemptEndKind::TimedOut,
        error,
        None,
        now,
    )))
}

/// The attempt failed at `now` because it counts as hung. `random`, from 0 to 1, jitters the retry.
pub fn decide_overdue(
    task: &TaskRecord,
    overdue: &Overdue,
    random: f64,
    now: Timestamp,
) -> Result<Transition, Refusal> {
    admit(task, Command::Expire)?;
    if !overdue.holds_for(task, now) {
        return Err(Refusal::NotDue);
    }

    let error = TaskError::new("timeout", "execution timed out", None, now, task.attempt);
    let retry_in_ms = Some(task.retry.delay_ms(task.retry_count + 1, random));
    Ok(without_token(fail::charge(
        task,
        AttemptEndKind::TimedOut,
        error,
        retry_in_ms,
        now,
    )))
}

/// Without its token, a late report of the attempt cannot count as a repetition.
fn without_token(mut transition: Transition) -> Transition {
    transition.after.lease_token = None;
    transition
}
