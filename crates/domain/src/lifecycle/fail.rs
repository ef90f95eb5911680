//! Fail: the running attempt returns an error.

use super::{Command, Refusal, Transition, fence, left_behind, moved};
use crate::{
    attempt::AttemptEndKind,
    event::EventKind,
    task::{Lease, Status, TaskError, TaskRecord},
    time::Timestamp,
};

/// The task after its attempt failed at `now`. Without `retry_in_ms` the error is fatal.
pub fn decide(
    task: &TaskRecord,
    lease: &Lease,
    error: TaskError,
    retry_in_ms: Option<u64>,
    now: Timestamp,
) -> Result<Transition, Refusal> {
    fence(task, Command::Fail, lease)?;
    Ok(charge(
        task,
        AttemptEndKind::Failed,
        error,
        retry_in_ms,
        now,
    ))
}

/// Counts the failure: another attempt, a dead letter when they are used up, or the end.
pub(super) fn charge(
    task: &TaskRecord,
    end: AttemptEndKind,
    error: TaskError,
    retry_in_ms: Option<u64>,
    now: Timestamp,
) -> Transition {
    let failures = task.retry_count + u32::from(retry_in_ms.is_some());
    let (status, due_at) = match retry_in_ms {
        None => (Status::Failed, task.due_at),
        Some(_) if failures >= task.max_attempts => (Status::DeadLetter, task.due_at),
        Some(delay_ms) => (Status::Retrying, now.plus_ms(delay_ms)),
    };
    let moves_on = status == Status::Retrying || end != AttemptEndKind::Failed;
    let archived = if moves_on {
        left_behind(task, end, Some(&error), now)
    } else {
        None
    };

    let after = TaskRecord {
        retry_count: failures,
        due_at,
        error: Some(error),
        ..moved(task, status, now)
    };

    Transition {
        after,
        archived,
        event: Some(EventKind::of_status(status)),
    }
}
