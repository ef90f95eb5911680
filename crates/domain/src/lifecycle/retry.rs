//! Retry: a person replays a task that ended badly, or only its failed children.

use super::{Command, Refusal, Transition, admit, moved};
use crate::{
    attempt::Attempt,
    event::EventKind,
    task::{Phase, Status, TaskRecord},
    time::Timestamp,
};

/// The task queued again at `now` with its counters at zero. Its checkpoint stays.
pub fn decide(task: &TaskRecord, now: Timestamp) -> Result<Transition, Refusal> {
    admit(task, Command::Retry)?;
    let after = TaskRecord {
        retry_count: 0,
        snooze_count: 0,
        crash_count: 0,
        due_at: now,
        deadline_at: None,
        ..reopened(task, Status::Queued, now)
    };

    Ok(Transition {
        after,
        archived: Attempt::of_row(task),
        event: Some(EventKind::Requeued),
    })
}

/// The ended parent waiting again at `now` for its failed children.
pub fn decide_children(task: &TaskRecord, now: Timestamp) -> Result<Transition, Refusal> {
    admit(task, Command::RedoChildren)?;
    // A failed finish step runs again after its children. A failed `run` would not run again.
    let failed_by_itself = task.phase == Phase::Run
        && task
            .error
            .as_ref()
            .is_some_and(|error| error.class != "children");
    if task.children.failed == 0 || task.children.open() > 0 || failed_by_itself {
        return Err(Refusal::NothingToRedo);
    }

    let after = TaskRecord {
        phase: Phase::Run,
        deadline_at: None,
        ..reopened(task, Status::Waiting, now)
    };

    Ok(Transition {
        after,
        archived: Attempt::of_row(task),
        event: Some(EventKind::Waiting),
    })
}

/// Whether a child is one of those that are redone.
pub const fn is_redone(status: Status) -> bool {
    matches!(status, Status::Failed | Status::DeadLetter)
}

fn reopened(task: &TaskRecord, status: Status, now: Timestamp) -> TaskRecord {
    TaskRecord {
        lease_token: None,
        error: None,
        progress: None,
        ..moved(task, status, now)
    }
}
