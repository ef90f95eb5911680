//! Rescue: a maintenance job takes the task from a dead node. Only the loss of the node's heartbeat
//! leads to a rescue, not the run time of a handler.

use super::{Command, Refusal, Transition, admit, left_behind, moved, touched};
use crate::{
    attempt::AttemptEndKind,
    event::EventKind,
    ids::NodeId,
    task::{Status, TaskError, TaskRecord},
    time::Timestamp,
};

/// The task queued again at `now`, or quarantined once `max_crashes` nodes died while they ran it.
/// A task whose row was set to running by hand has no node.
pub fn decide(
    task: &TaskRecord,
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
            "quarantined: {crash_count} nodes died while they ran this task; \
             if it is not the cause, retry it; it continues from its checkpoint"
        )
    } else {
        "the node that ran this attempt died".to_owned()
    };

    let error = TaskError::new("crash", &message, None, now, task.attempt);
    let archived = left_behind(task, AttemptEndKind::Crashed, Some(&error), now);
    let after = TaskRecord {
        crash_count,
        lease_token: None,
        error: Some(error),
        ..moved(task, status, now)
    };

    Ok(Transition {
        after,
        archived,
        event: Some(EventKind::of_status(status)),
    })
}

/// The rescued task reserved for its host: for other hosts it is due `keep_ms` later. A quarantined
/// one stays as it is.
pub fn host_affinity(mut rescued: Transition, keep_ms: u64, now: Timestamp) -> Transition {
    if rescued.after.status.is_claimable() {
        rescued.after.due_at = now.plus_ms(keep_ms);
    }
    rescued
}

/// The reserved task due at `now`, because a node of its host is about to claim it.
pub fn release(task: &TaskRecord, now: Timestamp) -> Result<Transition, Refusal> {
    admit(task, Command::Claim)?;
    let after = TaskRecord {
        due_at: task.due_at.min(now),
        ..touched(task, now)
    };

    Ok(Transition {
        after,
        archived: None,
        event: None,
    })
}
