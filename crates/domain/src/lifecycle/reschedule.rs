//! Reschedule: a person changes when, how urgently, where and how often a task is tried.

use super::{Command, Refusal, Transition, admit, touched};
use crate::{
    bounds,
    error::{Invalid, StoreError},
    event::EventKind,
    names::QueueName,
    task::TaskRecord,
    time::Timestamp,
};

/// The changes; an absent field stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reschedule {
    pub run_at: Option<Timestamp>,
    pub priority: Option<u8>,
    pub max_attempts: Option<u32>,
    pub queue: Option<QueueName>,
}

impl Reschedule {
    /// Refuses the first invalid field, and an empty change.
    pub fn check(&self) -> Result<(), Invalid> {
        if *self == Self::default() {
            let allowed = "at least one of runAt, priority, maxAttempts, queue";
            return Err(Invalid::new("change", "names nothing to change", allowed));
        }

        self.run_at.map_or(Ok(()), |moment| moment.check("runAt"))?;
        self.priority.map_or(Ok(()), bounds::check_priority)?;
        self.max_attempts.map_or(Ok(()), bounds::check_max_attempts)
    }
}

/// The task changed at `now`.
pub fn decide(
    task: &TaskRecord,
    change: &Reschedule,
    now: Timestamp,
) -> Result<Transition, StoreError> {
    change.check()?;
    admit(task, Command::Reschedule)?;
    if change.run_at.is_some() && !task.status.is_claimable() {
        return Err(Refusal::NotWaitingForTime {
            status: task.status,
        }
        .into());
    }

    let after = TaskRecord {
        due_at: change.run_at.unwrap_or(task.due_at),
        priority: change.priority.unwrap_or(task.priority),
        max_attempts: change.max_attempts.unwrap_or(task.max_attempts),
        queue: change.queue.clone().unwrap_or_else(|| task.queue.clone()),
        ..touched(task, now)
    };

    Ok(Transition {
        after,
        archived: None,
        event: Some(EventKind::Rescheduled),
    })
}
