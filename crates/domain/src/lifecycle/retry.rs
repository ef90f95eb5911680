//! Retry: a person replays what ended badly, the task itself or only its failed children.

use super::{Command, Refusal, Transition, admit, moved};
use crate::{
    attempt::Attempt,
    event::EventKind,
    task::{Phase, Status, Task},
    time::Timestamp,
};

/// The task queued again at `now` with its counters at zero. Its checkpoint stays.
pub fn decide(task: &Task, now: Timestamp) -> Result<Transition, Refusal> {
    admit(task, Command::Retry)?;
    let after = Task {
        retry_count: 0,
        snooze_count: 0,
        crash_count: 0,
        due_at: now,
        deadline_at: None,
        ..reopened(task, Status::Queued, now)
    };
    Ok(Transition {
        after,
        archived: Attempt::told_by(task),
        event: Some(EventKind::Requeued),
    })
}

/// The ended parent waiting again at `now`, for its failed children to be redone.
pub fn decide_children(task: &Task, now: Timestamp) -> Result<Transition, Refusal> {
    admit(task, Command::RedoChildren)?;
    // A finish step that failed, failed over its children, and sees them again; a `run` that failed would not be run again.
    let failed_by_itself = task.phase == Phase::Run
        && task
            .error
            .as_ref()
            .is_some_and(|error| error.class != "children");
    if task.children.failed == 0 || task.children.open() > 0 || failed_by_itself {
        return Err(Refusal::NothingToRedo);
    }
    let after = Task {
        phase: Phase::Run,
        deadline_at: None,
        ..reopened(task, Status::Waiting, now)
    };
    Ok(Transition {
        after,
        archived: Attempt::told_by(task),
        event: Some(EventKind::Waiting),
    })
}

/// Whether a child is one of those that are redone.
pub const fn is_redone(status: Status) -> bool {
    matches!(status, Status::Failed | Status::DeadLetter)
}

fn reopened(task: &Task, status: Status, now: Timestamp) -> Task {
    Task {
        lease_token: None,
        error: None,
        progress: None,
        ..moved(task, status, now)
    }
}
