//! Hand back: a node that shuts down returns the task. No retry is counted, and the due time stays.

use super::{Command, Refusal, Transition, fence, left_behind, moved};
use crate::{
    attempt::AttemptEndKind,
    event::EventKind,
    task::{Lease, Status, TaskRecord},
    time::Timestamp,
};

/// The task queued again at `now`.
pub fn decide(task: &TaskRecord, lease: &Lease, now: Timestamp) -> Result<Transition, Refusal> {
    fence(task, Command::HandBack, lease)?;
    let archived = left_behind(task, AttemptEndKind::HandedBack, None, now);

    // Without its token, a late report of this attempt cannot count as a repetition.
    let after = TaskRecord {
        lease_token: None,
        ..moved(task, Status::Queued, now)
    };

    Ok(Transition {
        after,
        archived,
        event: Some(EventKind::Requeued),
    })
}
