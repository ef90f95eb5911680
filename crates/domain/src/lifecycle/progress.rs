//! Progress: the running attempt reports how far it is.

use super::{Command, Refusal, Transition, fence, touched};
use crate::{
    json::Json,
    task::{Lease, TaskRecord},
    time::Timestamp,
};

/// The task with `progress` noted at `now`.
pub fn decide(
    task: &TaskRecord,
    lease: &Lease,
    progress: Json,
    now: Timestamp,
) -> Result<Transition, Refusal> {
    fence(task, Command::Progress, lease)?;
    let after = TaskRecord {
        progress: Some(progress),
        ..touched(task, now)
    };

    Ok(Transition {
        after,
        archived: None,
        event: None,
    })
}
