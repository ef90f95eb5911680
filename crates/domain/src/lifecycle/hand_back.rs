//! Hand back: a node that shuts down returns the task. Nothing is charged and it keeps its place.

use super::{Command, Refusal, Transition, fence, left_behind, moved};
use crate::{
    attempt::AttemptOutcome,
    event::EventKind,
    task::{Lease, Status, Task},
    time::Timestamp,
};

/// The task free for the next node at `now`.
pub fn decide(task: &Task, lease: &Lease, now: Timestamp) -> Result<Transition, Refusal> {
    fence(task, Command::HandBack, lease)?;
    let archived = left_behind(task, AttemptOutcome::HandedBack, None, now);
    // Without its token a late report of this attempt cannot pass for a repeated one.
    let after = Task {
        lease_token: None,
        ..moved(task, Status::Queued, now)
    };
    Ok(Transition {
        after,
        archived,
        event: Some(EventKind::Requeued),
    })
}
