//! The table of (state, command) → target: the one definition of what is allowed.
//!
//! Decisions read it, stores are tested against it, and `docs/lifecycle.md` is generated from it.

use crate::task::Status;

/// Every command to an existing task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Command {
    Claim,
    Heartbeat,
    Progress,
    Checkpoint,
    Finish,
    Fail,
    Snooze,
    HandBack,
    Cancel,
    Retry,
    RedoChildren,
    Reschedule,
    Rescue,
    Expire,
    FailWaiting,
    ChildEnded,
    Prune,
}

/// What a command does to a task in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// Not allowed; nothing changes.
    Refused,
    /// Succeeds without changing anything.
    Unchanged,
    /// Moves the task to one of these states, which may be its own.
    To(&'static [Status]),
    /// Removes the task.
    Gone,
}

use Cell::{Gone, Refused as no, Unchanged as same};

// Cells that move a task. The letters of a name are the states that it may move to.
const Q: Cell = Cell::To(&[Status::Queued]);
const R: Cell = Cell::To(&[Status::Running]);
const T: Cell = Cell::To(&[Status::Retrying]);
const W: Cell = Cell::To(&[Status::Waiting]);
const D: Cell = Cell::To(&[Status::Completed]);
const E: Cell = Cell::To(&[Status::CompletedWithErrors]);
const F: Cell = Cell::To(&[Status::Failed]);
const C: Cell = Cell::To(&[Status::Cancelled]);
const X: Cell = Cell::To(&[Status::DeadLetter]);
const QX: Cell = Cell::To(&[Status::Queued, Status::DeadLetter]);
const TFX: Cell = Cell::To(&[Status::Retrying, Status::Failed, Status::DeadLetter]);
const FTX: Cell = Cell::To(&[Status::Failed, Status::Retrying, Status::DeadLetter]);
const DEFWQ: Cell = Cell::To(&[
    Status::Completed,
    Status::CompletedWithErrors,
    Status::Failed,
    Status::Waiting,
    Status::Queued,
]);
const WQDEF: Cell = Cell::To(&[
    Status::Waiting,
    Status::Queued,
    Status::Completed,
    Status::CompletedWithErrors,
    Status::Failed,
]);

/// Columns in the order of [`Status::ALL`]: Queued, Running, reTrying, Waiting, completeD, with
/// Errors, Failed, Cancelled, dead letter (X).
#[rustfmt::skip]
pub const TABLE: [(Command, [Cell; 9]); 17] = [
    //                       Q   R      T   W      D     E     F     C     X
    (Command::Claim,        [R,  no,    R,  no,    no,   no,   no,   no,   no]),
    (Command::Heartbeat,    [no, R,     no, no,    no,   no,   no,   no,   no]),
    (Command::Progress,     [no, R,     no, no,    no,   no,   no,   no,   no]),
    (Command::Checkpoint,   [no, R,     no, no,    no,   no,   no,   no,   no]),
    (Command::Finish,       [no, DEFWQ, no, no,    no,   no,   no,   no,   no]),
    (Command::Fail,         [no, TFX,   no, no,    no,   no,   no,   no,   no]),
    (Command::Snooze,       [no, T,     no, no,    no,   no,   no,   no,   no]),
    (Command::HandBack,     [no, Q,     no, no,    no,   no,   no,   no,   no]),
    (Command::Cancel,       [C,  C,     C,  C,     same, same, same, same, same]),
    (Command::Retry,        [no, no,    no, no,    no,   no,   Q,    Q,    Q]),
    (Command::RedoChildren, [no, no,    no, no,    no,   W,    W,    no,   no]),
    (Command::Reschedule,   [Q,  R,     T,  W,     no,   no,   no,   no,   no]),
    (Command::Rescue,       [no, QX,    no, no,    no,   no,   no,   no,   no]),
    (Command::Expire,       [F,  FTX,   F,  F,     no,   no,   no,   no,   no]),
    (Command::FailWaiting,  [F,  no,    F,  no,    no,   no,   no,   no,   no]),
    (Command::ChildEnded,   [Q,  R,     T,  WQDEF, D,    E,    F,    C,    X]),
    (Command::Prune,        [no, no,    no, no,    Gone, Gone, Gone, Gone, Gone]),
];

impl Command {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Heartbeat => "heartbeat",
            Self::Progress => "progress",
            Self::Checkpoint => "checkpoint",
            Self::Finish => "finish",
            Self::Fail => "fail",
            Self::Snooze => "snooze",
            Self::HandBack => "hand back",
            Self::Cancel => "cancel",
            Self::Retry => "retry",
            Self::RedoChildren => "redo children",
            Self::Reschedule => "reschedule",
            Self::Rescue => "rescue",
            Self::Expire => "expire",
            Self::FailWaiting => "fail waiting",
            Self::ChildEnded => "child ended",
            Self::Prune => "prune",
        }
    }

    /// One line of the manual.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Claim => {
                "a node takes a due task; the attempt grows and a new lease token is handed out"
            }
            Self::Heartbeat => "a node shows that it lives and learns which of its leases are lost",
            Self::Progress => "the running attempt reports how far it is",
            Self::Checkpoint => {
                "the running attempt saves the state that its successor starts from"
            }
            Self::Finish => {
                "the running attempt returns a result; a parent then waits for its children or \
                 follows their ends"
            }
            Self::Fail => {
                "the running attempt returns an error: retried later, failed, or a dead letter"
            }
            Self::Snooze => {
                "the running attempt asks to be run again later, without using up a retry"
            }
            Self::HandBack => "a node that shuts down returns the task; no retry is counted",
            Self::Cancel => {
                "a person or the parent's cancel ends the task; ended tasks stay as they are"
            }
            Self::Retry => "a person replays a task that ended badly, with its counters at zero",
            Self::RedoChildren => {
                "a person replays only the failed children; the parent waits again"
            }
            Self::Reschedule => "a person changes time, priority, queue or number of attempts",
            Self::Rescue => {
                "the rescuer takes the task from a dead node; after repeated crashes it is \
                 quarantined"
            }
            Self::Expire => {
                "the expirer ends tasks past their deadline, and fails attempts that are hung"
            }
            Self::FailWaiting => {
                "the dispatcher ends a waiting task that cannot be dispatched to any node"
            }
            Self::ChildEnded => {
                "a child changed state: the parent's counters follow; a waiting parent continues \
                 or ends when its last child has ended"
            }
            Self::Prune => {
                "the pruner removes tasks that ended long ago, together with their children"
            }
        }
    }

    /// Whether the command carries the lease of the running attempt.
    pub const fn is_fenced(self) -> bool {
        match self {
            Self::Heartbeat
            | Self::Progress
            | Self::Checkpoint
            | Self::Finish
            | Self::Fail
            | Self::Snooze
            | Self::HandBack => true,
            Self::Claim
            | Self::Cancel
            | Self::Retry
            | Self::RedoChildren
            | Self::Reschedule
            | Self::Rescue
            | Self::Expire
            | Self::FailWaiting
            | Self::ChildEnded
            | Self::Prune => false,
        }
    }
}

/// The row of `command` in the table.
pub const fn row(command: Command) -> &'static [Cell; 9] {
    &TABLE[command as usize].1
}

/// What `command` does to a task that is at `status`.
pub const fn cell(command: Command, status: Status) -> Cell {
    row(command)[status as usize]
}

/// Where `command` may take a task that is at `status`.
pub const fn targets(command: Command, status: Status) -> &'static [Status] {
    match cell(command, status) {
        Cell::To(targets) => targets,
        Cell::Refused | Cell::Unchanged | Cell::Gone => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_columns_are_in_the_order_of_their_names() {
        for (index, (command, _)) in TABLE.iter().enumerate() {
            assert_eq!(*command as usize, index);
        }
        for (index, status) in Status::ALL.iter().enumerate() {
            assert_eq!(*status as usize, index);
        }
    }

    #[test]
    fn only_a_retry_moves_an_ended_task() {
        for (command, cells) in TABLE {
            for status in Status::ALL.into_iter().filter(|status| status.is_ended()) {
                let leaves =
                    matches!(cells[status as usize], Cell::To(targets) if targets != [status]);
                assert!(
                    !leaves || matches!(command, Command::Retry | Command::RedoChildren),
                    "{command:?} {status:?}"
                );
            }
        }
    }

    #[test]
    fn only_a_running_task_takes_fenced_commands() {
        for (command, cells) in TABLE.into_iter().filter(|(command, _)| command.is_fenced()) {
            for status in Status::ALL {
                let taken = matches!(cells[status as usize], Cell::To(_));
                assert_eq!(taken, status == Status::Running, "{command:?} {status:?}");
            }
        }
    }
}
