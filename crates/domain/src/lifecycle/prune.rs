//! Prune: a maintenance job removes tasks that ended long ago. A child is removed only with its
//! parent, so that a parent's counters always match its rows.

use super::{Command, Refusal, admit};
use crate::{filter::Retention, task::TaskRecord, time::Timestamp};

/// Refuses to remove a task that is open, a child, or younger than its retention.
pub fn decide(task: &TaskRecord, retention: &Retention, now: Timestamp) -> Result<(), Refusal> {
    admit(task, Command::Prune)?;
    let keep_ms = retention.keep_ms(task.status).unwrap_or(u64::MAX);
    let old = task
        .finished_at
        .is_some_and(|finished| finished.plus_ms(keep_ms) <= now);
    if task.parent_id.is_some() || task.children.open() > 0 || !old {
        return Err(Refusal::NotDue);
    }

    Ok(())
}
