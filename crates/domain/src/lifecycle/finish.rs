//! Finish: the running attempt returns a result.
//!
//! A task without children is completed. A parent waits for its open children. When none is open,
//! it goes to its finish step if it has one; otherwise its children decide how it ends.

use super::{Command, Refusal, Transition, fence, left_behind, moved};
use crate::{
    attempt::AttemptEndKind,
    event::EventKind,
    json::Json,
    task::{Lease, Phase, Status, TaskError, TaskRecord},
    time::Timestamp,
};

/// The task after its attempt returned `result` at `now`.
pub fn decide(
    task: &TaskRecord,
    lease: &Lease,
    result: Option<Json>,
    result_url: Option<String>,
    now: Timestamp,
) -> Result<Transition, Refusal> {
    fence(task, Command::Finish, lease)?;
    let returned = TaskRecord {
        result,
        result_url,
        error: None,
        ..task.clone()
    };

    let mut transition = move_on(&returned, now);
    if !transition.after.status.is_ended() {
        transition.archived = left_behind(task, AttemptEndKind::Completed, None, now);
    }

    Ok(transition)
}

/// Where a task whose own code has returned goes next.
pub(super) fn move_on(task: &TaskRecord, now: Timestamp) -> Transition {
    let after = if task.children.open() > 0 {
        moved(task, Status::Waiting, now)
    } else if task.finish_step && task.phase == Phase::Run {
        TaskRecord {
            phase: Phase::Finish,
            due_at: now,
            ..moved(task, Status::Queued, now)
        }
    } else {
        end_by_children(task, now)
    };

    let event = Some(EventKind::of_status(after.status));
    Transition {
        after,
        archived: None,
        event,
    }
}

fn end_by_children(task: &TaskRecord, now: Timestamp) -> TaskRecord {
    let status = task.children.verdict();
    let error = (status == Status::Failed).then(|| {
        TaskError::new(
            "children",
            "none of the children completed",
            None,
            now,
            task.attempt,
        )
    });

    TaskRecord {
        error,
        ..moved(task, status, now)
    }
}
