//! Fail waiting: a duty ends a task that waits to be claimed and cannot be brought to any node.

use super::{Command, Refusal, Transition, admit, fail};
use crate::{
    attempt::AttemptOutcome,
    task::{Task, TaskError},
    time::Timestamp,
};

/// The task failed at `now` without another attempt.
pub fn decide(task: &Task, error: TaskError, now: Timestamp) -> Result<Transition, Refusal> {
    admit(task, Command::FailWaiting)?;
    let mut transition = fail::charge(task, AttemptOutcome::Failed, error, None, now);
    // Without its token a late report of the attempt before cannot pass for a repeated one.
    transition.after.lease_token = None;
    Ok(transition)
}
