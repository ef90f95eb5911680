//! What may happen to a task: one table, and one pure decision per command.
//!
//! A decision takes the task as it is, the command and the time, and returns the task as it will be
//! together with what must be written beside it. Nothing here touches a store; stores apply decisions by
//! compare-and-set and are tested against this code.

pub mod table;

pub mod submit;

pub mod claim;
pub mod heartbeat;

pub mod checkpoint;
pub mod progress;

pub mod fail;
pub mod finish;
pub mod hand_back;
pub mod snooze;

pub mod cancel;
pub mod reschedule;
pub mod retry;

pub mod child_ended;
pub mod expire;
pub mod fail_waiting;
pub mod prune;
pub mod rescue;

use crate::{
    attempt::{Attempt, AttemptOutcome},
    event::EventKind,
    task::{Lease, Status, Task, TaskError},
    time::Timestamp,
};

pub use table::{Cell, Command};

/// A decided change of one task and what is written with it.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    pub after: Task,
    /// The attempt that the task moves on from.
    pub archived: Option<Attempt>,
    /// What listeners are told; silent changes tell nothing.
    pub event: Option<EventKind>,
}

/// Why a command is not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The state does not allow it.
    #[error("a task that is {} cannot be given the command {}", status.as_str(), command.as_str())]
    WrongState { command: Command, status: Status },
    /// The lease is not that of the running attempt: it was taken over, cancelled or ended.
    #[error("this lease is no longer valid: the task is {} in attempt {attempt}", status.as_str())]
    StaleLease { status: Status, attempt: u32 },
    /// The same report of the same attempt was recorded before.
    #[error("this report was recorded before; the task is {}", status.as_str())]
    AlreadyApplied { status: Status },
    /// The task is not due yet.
    #[error("the task is not due yet")]
    NotDue,
    /// A time can only be given to a task that waits for one.
    #[error("the time of a task that is {} cannot be changed; only a waiting one's can", status.as_str())]
    NotWaitingForTime { status: Status },
    /// There is no failed child to redo, or some child has not ended.
    #[error(
        "no child of this task can be redone: none failed, or some have not ended, or the task failed by itself; retry the \
         task, then"
    )]
    NothingToRedo,
    /// The parent has as many children as it may have.
    #[error("a task may have at most 1000000 children")]
    TooManyChildren,
}

impl Refusal {
    /// The stable code of the refusal.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::WrongState { .. } => "wrong_state",
            Self::StaleLease { .. } => "stale_lease",
            Self::AlreadyApplied { .. } => "already_applied",
            Self::NotDue => "not_due",
            Self::NotWaitingForTime { .. } => "not_waiting",
            Self::NothingToRedo => "nothing_to_redo",
            Self::TooManyChildren => "too_many_children",
        }
    }
}

/// Refuses a command that the table does not know for the task's state.
fn admit(task: &Task, command: Command) -> Result<(), Refusal> {
    match table::cell(command, task.status) {
        Cell::To(_) | Cell::Gone => Ok(()),
        Cell::Refused | Cell::Kept => Err(Refusal::WrongState {
            command,
            status: task.status,
        }),
    }
}

/// Refuses a worker's command unless its lease is that of the running attempt.
fn fence(task: &Task, command: Command, lease: &Lease) -> Result<(), Refusal> {
    if task.lease() == Some(*lease) {
        return admit(task, command);
    }
    let own_report = table::targets(command, Status::Running).contains(&task.status);
    if task.is_last_attempt(lease) && own_report {
        return Err(Refusal::AlreadyApplied {
            status: task.status,
        });
    }
    Err(Refusal::StaleLease {
        status: task.status,
        attempt: task.attempt,
    })
}

/// The moment of a change. Whoever waited for a task has looked at the clock before others changed it, and time does not
/// go back: no start is before its submit, and no end before its start.
fn moment(task: &Task, now: Timestamp) -> Timestamp {
    now.max(task.updated_at)
}

/// The task changed at `now`, with its state as it was.
fn touched(task: &Task, now: Timestamp) -> Task {
    Task {
        updated_at: moment(task, now),
        version: task.version + 1,
        ..task.clone()
    }
}

/// The task at `status` since `now`.
fn moved(task: &Task, status: Status, now: Timestamp) -> Task {
    let finished_at = status.is_ended().then(|| moment(task, now));
    Task {
        status,
        finished_at,
        ..touched(task, now)
    }
}

/// The attempt that `task` leaves behind when a node no longer holds it.
fn left_behind(
    task: &Task,
    outcome: AttemptOutcome,
    error: Option<&TaskError>,
    now: Timestamp,
) -> Option<Attempt> {
    (task.status == Status::Running)
        .then(|| Attempt::of(task, outcome, Some(moment(task, now)), error.cloned()))
}

/// The event that tells of an end.
const fn event_of_end(status: Status) -> EventKind {
    match status {
        Status::Completed | Status::CompletedWithErrors => EventKind::Completed,
        Status::Failed => EventKind::Failed,
        Status::DeadLetter => EventKind::DeadLettered,
        Status::Cancelled => EventKind::Cancelled,
        Status::Waiting => EventKind::Waiting,
        Status::Retrying => EventKind::Retrying,
        Status::Running => EventKind::Started,
        Status::Queued => EventKind::Requeued,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ids::{LeaseToken, NodeId, TaskId},
        json::Json,
        submission::NewTask,
    };
    use uuid::Uuid;

    #[test]
    fn what_is_decided_by_an_older_look_at_the_clock_is_not_before_what_was() {
        let at = Timestamp::from_micros;
        let new = NewTask::new(
            "u",
            "t",
            "q",
            Json::parse("parameters", "{}".to_owned()).unwrap(),
        );
        let queued = submit::decide(&new, TaskId(Uuid::from_u128(1)), at(100))
            .unwrap()
            .after;
        let (node, token) = (NodeId(Uuid::from_u128(2)), LeaseToken(Uuid::from_u128(3)));
        let running = claim::decide(&queued, node, "h", token, at(700))
            .unwrap()
            .after;
        let early = claim::decide(&touched(&queued, at(700)), node, "h", token, at(300))
            .unwrap()
            .after;
        assert_eq!(
            (early.started_at, early.last_attempt_at, early.updated_at),
            (Some(at(700)), Some(at(700)), at(700))
        );
        let cancelled = cancel::decide(&running, at(300)).unwrap().after;
        assert_eq!(
            (cancelled.last_attempt_at, cancelled.finished_at),
            (Some(at(700)), Some(at(700)))
        );
        assert_eq!(cancelled.updated_at, at(700));
    }
}
