//! Finish: the running attempt returns a result.
//!
//! A task without children is completed. A parent waits for its open children; when none is open it goes to
//! its finish step if it has one, and else ends as its children let it.

use super::{Command, Refusal, Transition, event_of_end, fence, left_behind, moved};
use crate::{
    attempt::AttemptOutcome,
    json::Json,
    task::{Lease, Phase, Status, Task, TaskError},
    time::Timestamp,
};

/// The task after its attempt returned `result` at `now`.
pub fn decide(
    task: &Task,
    lease: &Lease,
    result: Option<Json>,
    result_url: Option<String>,
    now: Timestamp,
) -> Result<Transition, Refusal> {
    fence(task, Command::Finish, lease)?;
    let returned = Task {
        result,
        result_url,
        error: None,
        ..task.clone()
    };
    let mut transition = go_on(&returned, now);
    if !transition.after.status.is_ended() {
        transition.archived = left_behind(task, AttemptOutcome::Completed, None, now);
    }
    Ok(transition)
}

/// Where a task whose own code has returned goes next.
pub(super) fn go_on(task: &Task, now: Timestamp) -> Transition {
    let after = if task.children.open() > 0 {
        moved(task, Status::Waiting, now)
    } else if task.finish_step && task.phase == Phase::Run {
        Task {
            phase: Phase::Finish,
            due_at: now,
            ..moved(task, Status::Queued, now)
        }
    } else {
        end_as_children_let(task, now)
    };
    let event = Some(event_of_end(after.status));
    Transition {
        after,
        archived: None,
        event,
    }
}

fn end_as_children_let(task: &Task, now: Timestamp) -> Task {
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
    Task {
        error,
        ..moved(task, status, now)
    }
}
