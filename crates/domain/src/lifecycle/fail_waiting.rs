//! Fail waiting: a maintenance job ends a waiting task that cannot be dispatched to any node.

use super::{Command, Refusal, Transition, admit, fail};
use crate::{
    attempt::AttemptEndKind,
    task::{TaskError, TaskRecord},
    time::Timestamp,
};

/// The task failed at `now` without another attempt.
pub fn decide(task: &TaskRecord, error: TaskError, now: Timestamp) -> Result<Transition, Refusal> {
    admit(task, Command::FailWaiting)?;
    let mut transition = fail::charge(task, AttemptEndKind::Failed, error, None, now);
    // Without its token, a late report of the last attempt cannot count as a repetition.
    transition.after.lease_token = None;
    Ok(transition)
}
