//! Progress: the running attempt tells how far it is.

use super::{Command, Refusal, Transition, fence, touched};
use crate::{
    json::Json,
    task::{Lease, Task},
    time::Timestamp,
};

/// The task with `progress` noted at `now`.
pub fn decide(
    task: &Task,
    lease: &Lease,
    progress: Json,
    now: Timestamp,
) -> Result<Transition, Refusal> {
    fence(task, Command::Progress, lease)?;
    let after = Task {
        progress: Some(progress),
        ..touched(task, now)
    };
    Ok(Transition {
        after,
        archived: None,
        event: None,
    })
}
