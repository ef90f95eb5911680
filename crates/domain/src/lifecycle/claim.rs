//! Claim: a node takes a due task. The attempt grows, so an earlier attempt is fenced off.

use super::{Command, Refusal, Transition, admit, moment, moved};
use crate::{
    event::EventKind,
    ids::{LeaseToken, NodeId},
    task::{Status, TaskRecord},
    time::Timestamp,
};

/// The task claimed by `node_id` at `now`.
pub fn decide(
    task: &TaskRecord,
    node_id: NodeId,
    host: &str,
    token: LeaseToken,
    now: Timestamp,
) -> Result<Transition, Refusal> {
    admit(task, Command::Claim)?;
    if task.due_at > now {
        return Err(Refusal::NotDue);
    }

    let at = Some(moment(task, now));
    let after = TaskRecord {
        attempt: task.attempt + 1,
        lease_token: Some(token),
        node_id: Some(node_id),
        host: Some(host.to_owned()),
        started_at: task.started_at.or(at),
        last_attempt_at: at,
        ..moved(task, Status::Running, now)
    };

    Ok(Transition {
        after,
        archived: None,
        event: Some(EventKind::Started),
    })
}
