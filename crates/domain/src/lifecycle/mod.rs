//! What may happen to a task: one table, and one pure decision per command.
//!
//! A decision takes the task as it is, the command and the time, and returns the task as it will be
//! together with what must be written beside it. Nothing here touches a store; stores apply
//! decisions by compare-and-set and are tested against this code.

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
    attempt::{Attempt, AttemptEndKind},
    event::EventKind,
    task::{Lease, Status, TaskError, TaskRecord},
    time::Timestamp,
};

pub use table::{Cell, Command};

/// A decided change of one task and what is written with it.
#[derive(Debug, Clone, PartialEq)]
pub struct Transition {
    pub after: TaskRecord,
    /// The attempt to archive, because the task moves on from it.
    pub archived: Option<Attempt>,
    /// The event to publish; a silent change has none.
    pub event: Option<EventKind>,
}

/// Why a command is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The state does not allow it.
    #[error("a task that is {} cannot be given the command {}", status.as_str(), command.as_str())]
    WrongState { command: Command, status: Status },
    /// The lease is not that of the running attempt: the task was taken over, cancelled or ended.
    #[error("this lease is no longer valid: the task is {} in attempt {attempt}", status.as_str())]
    StaleLease { status: Status, attempt: u32 },
    /// The same report of the same attempt was recorded before.
    #[error("this report was recorded before; the task is {}", status.as_str())]
    AlreadyApplied { status: Status },
    /// The task is not due yet.
    #[error("the task is not due yet")]
    NotDue,
    /// Only a waiting task can be given a due time.
    #[error(
        "the time of a task that is {} cannot be changed; only that of a waiting task can",
        status.as_str()
    )]
    NotWaitingForTime { status: Status },
    /// There is no failed child to redo, or some child has not ended.
    #[error(
        "no child of this task can be redone: none failed, some have not ended, or the task itself \
         failed; retry the task instead"
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

/// Refuses a command that the table does not allow in the task's state.
fn admit(task: &TaskRecord, command: Command) -> Result<(), Refusal> {
    match table::cell(command, task.status) {
        Cell::To(_) | Cell::Gone => Ok(()),
        Cell::Refused | Cell::Unchanged => Err(Refusal::WrongState {
            command,
            status: task.status,
        }),
    }
}

/// Refuses an attempt's command unless its lease is that of the running attempt.
fn fence(task: &TaskRecord, command: Command, lease: &Lease) -> Result<(), Refusal> {
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

/// The moment of a change. A caller that waited for a row lock may have read the clock before
/// others changed the row. Time does not go back: no start is before its submit, no end before its
/// start.
fn moment(task: &TaskRecord, now: Timestamp) -> Timestamp {
    now.max(task.updated_at)
}

/// The task changed at `now`, at the same status.
fn touched(task: &TaskRecord, now: Timestamp) -> TaskRecord {
    TaskRecord {
        updated_at: moment(task, now),
        version: task.version + 1,
        ..task.clone()
    }
}

/// The task at `status` since `now`.
fn moved(task: &TaskRecord, status: Status, now: Timestamp) -> TaskRecord {
    let finished_at = status.is_ended().then(|| moment(task, now));
    TaskRecord {
        status,
        finished_at,
        ..touched(task, now)
    }
}

/// The attempt to archive when a node no longer runs the task.
fn left_behind(
    task: &TaskRecord,
    end: AttemptEndKind,
    error: Option<&TaskError>,
    now: Timestamp,
) -> Option<Attempt> {
    (task.status == Status::Running)
        .then(|| Attempt::of(task, end, Some(moment(task, now)), error.cloned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ids::{LeaseToken, NodeId, TaskId},
        json::Json,
        names::QueueName,
        submission::NewTask,
    };
    use uuid::Uuid;

    #[test]
    fn a_change_decided_with_an_older_clock_reading_is_not_before_the_last_one() {
        let at = Timestamp::from_micros;
        let new = NewTask::new(
            "u",
            "t",
            QueueName::parse("q").unwrap(),
            Json::parse("parameters", "{}".to_owned()).unwrap(),
        );

        let queued = submit::decide(&new, TaskId(Uuid::from_u128(1)), at(100))
            .unwrap()
            .after;
        let node = NodeId(Uuid::from_u128(2));
        let token = LeaseToken(Uuid::from_u128(3));
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
