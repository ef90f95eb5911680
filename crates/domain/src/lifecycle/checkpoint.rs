//! Checkpoint: the running attempt saves the state that its successor starts from.

use super::{Command, Refusal, Transition, fence, touched};
use crate::{
    json::Json,
    task::{Lease, TaskRecord},
    time::Timestamp,
};

/// The task with `checkpoint` saved at `now`.
pub fn decide(
    task: &TaskRecord,
    lease: &Lease,
    checkpoint: Json,
    now: Timestamp,
) -> Result<Transition, Refusal> {
    fence(task, Command::Checkpoint, lease)?;
    let after = TaskRecord {
        checkpoint: Some(checkpoint),
        ..touched(task, now)
    };

    Ok(Transition {
        after,
        archived: None,
        event: None,
    })
}
