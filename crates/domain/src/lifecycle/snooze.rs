//! Snooze: the running attempt asks to be run again later, without using up a retry.

use super::{Command, Refusal, Transition, fence, left_behind, moved};
use crate::{
    attempt::AttemptEndKind,
    event::EventKind,
    task::{Lease, Status, TaskError, TaskRecord},
    time::Timestamp,
};

/// The task due again `delay_ms` after `now`, with the reason for people.
pub fn decide(
    task: &TaskRecord,
    lease: &Lease,
    reason: Option<TaskError>,
    delay_ms: u64,
    now: Timestamp,
) -> Result<Transition, Refusal> {
    fence(task, Command::Snooze, lease)?;
    let archived = left_behind(task, AttemptEndKind::Snoozed, reason.as_ref(), now);
    let after = TaskRecord {
        snooze_count: task.snooze_count + 1,
        due_at: now.plus_ms(delay_ms),
        ..moved(task, Status::Retrying, now)
    };

    Ok(Transition {
        after,
        archived,
        event: Some(EventKind::Retrying),
    })
}
