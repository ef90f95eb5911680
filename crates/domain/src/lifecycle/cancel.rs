//! Cancel: a person, the parent's cancel, or the handler itself ends the task without a result.

use super::{Cell, Command, Refusal, Transition, fence, moved, table};
use crate::{
    event::EventKind,
    task::{Lease, Status, TaskRecord},
    time::Timestamp,
};

/// The task cancelled at `now`; `None` when it has ended and stays as it is.
pub fn decide(task: &TaskRecord, now: Timestamp) -> Option<Transition> {
    match table::cell(Command::Cancel, task.status) {
        Cell::To(_) => Some(cancelled(task, now)),
        Cell::Unchanged | Cell::Refused | Cell::Gone => None,
    }
}

/// The task cancelled at `now` by its own handler.
pub fn decide_by_handler(
    task: &TaskRecord,
    lease: &Lease,
    now: Timestamp,
) -> Result<Transition, Refusal> {
    fence(task, Command::Heartbeat, lease)?;
    Ok(cancelled(task, now))
}

fn cancelled(task: &TaskRecord, now: Timestamp) -> Transition {
    let after = TaskRecord {
        lease_token: None,
        result: None,
        result_url: None,
        ..moved(task, Status::Cancelled, now)
    };

    Transition {
        after,
        archived: None,
        event: Some(EventKind::Cancelled),
    }
}
