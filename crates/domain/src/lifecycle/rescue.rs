//! Rescue: a duty takes the task from a node that is dead. It knows nothing of handlers or run times:
//! only the loss of the node's heartbeat makes a rescue.

use super::{Command, Refusal, Transition, admit, event_of_end, left_behind, moved, touched};
use crate::{
    attempt::AttemptOutcome,
    ids::NodeId,
    task::{Status, Task, TaskError},
    time::Timestamp,
};

/// The task free for the next node at `now`, or quarantined once `max_crashes` nodes died with it. A task that somebody said to be
/// running has no node.
pub fn decide(
    task: &Task,
    dead: Option<NodeId>,
    max_crashes: u32,
    now: Timestamp,
) -> Result<Transition, Refusal> {
    admit(task, Command::Rescue)?;
    if task.node_id != dead {
        return Err(Refusal::StaleLease {
            status: task.status,
            attempt: task.attempt,
        });
    }
    let crash_count = task.crash_count + 1;
    let status = if crash_count >= max_crashes {
        Status::DeadLetter
    } else {
        Status::Queued
    };
    let message = if status == Status::DeadLetter {
        format!(
            "quarantined: {crash_count} nodes died while they ran this task; if it is not to blame, retry it: it goes on from its checkpoint"
        )
    } else {
        "the node that ran this attempt died".to_owned()
    };
    let error = TaskError::new("crash", &message, None, now, task.attempt);
    let archived = left_behind(task, AttemptOutcome::Crashed, Some(&error), now);
    let after = Task {
        crash_count,
        lease_token: None,
        error: Some(error),
        ..moved(task, status, now)
    };
    Ok(Transition {
        after,
        archived,
        event: Some(event_of_end(status)),
    })
}

/// The rescued task kept for its host: for others it is due `keep_ms` later. A quarantined one is as it was.
pub fn keep_for_host(mut rescued: Transition, keep_ms: u64, now: Timestamp) -> Transition {
    if rescued.after.status.is_claimable() {
        rescued.after.due_at = now.plus_ms(keep_ms);
    }
    rescued
}

/// The kept task due at `now`, because a node of its host is about to claim it.
pub fn release(task: &Task, now: Timestamp) -> Result<Transition, Refusal> {
    admit(task, Command::Claim)?;
    let after = Task {
        due_at: task.due_at.min(now),
        ..touched(task, now)
    };
    Ok(Transition {
        after,
        archived: None,
        event: None,
    })
}
