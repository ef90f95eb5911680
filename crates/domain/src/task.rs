//! The record of a task: what stores keep and decisions read.

use serde::{Deserialize, Serialize};

use crate::{
    bounds,
    ids::{LeaseToken, NodeId, TaskId},
    json::Json,
    names::QueueName,
    retry::RetryPolicy,
    time::Timestamp,
};

/// The status of a task. The spelling is the public contract's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    /// Can be claimed once it is due.
    Queued,
    /// A node runs it.
    Running,
    /// Waits for its next attempt, after a failure or a snooze.
    Retrying,
    /// A parent whose own code has returned and whose children have not all ended.
    Waiting,
    /// Ended with a result, like every child.
    Completed,
    /// A parent whose children completed in part.
    CompletedWithErrors,
    /// Ended by an error that is not retried.
    Failed,
    /// Ended by a person, by its parent, or by its own handler. No result is kept.
    Cancelled,
    /// Retries used up, or quarantined. Kept for people to inspect and replay.
    DeadLetter,
}

impl Status {
    /// In the order of the lifecycle table's columns.
    pub const ALL: [Self; 9] = [
        Self::Queued,
        Self::Running,
        Self::Retrying,
        Self::Waiting,
        Self::Completed,
        Self::CompletedWithErrors,
        Self::Failed,
        Self::Cancelled,
        Self::DeadLetter,
    ];

    /// The spelling of the public contract.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "QUEUED",
            Self::Running => "RUNNING",
            Self::Retrying => "RETRYING",
            Self::Waiting => "WAITING",
            Self::Completed => "COMPLETED",
            Self::CompletedWithErrors => "COMPLETED_WITH_ERRORS",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
            Self::DeadLetter => "DEAD_LETTER",
        }
    }

    /// Parses the spelling of [`Self::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Whether the task has ended.
    pub const fn is_ended(self) -> bool {
        match self {
            Self::Queued | Self::Running | Self::Retrying | Self::Waiting => false,
            Self::Completed
            | Self::CompletedWithErrors
            | Self::Failed
            | Self::Cancelled
            | Self::DeadLetter => true,
        }
    }

    /// Whether a node may claim the task once it is due.
    pub const fn is_claimable(self) -> bool {
        matches!(self, Self::Queued | Self::Retrying)
    }
}

/// The step that a task is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The task's own code.
    #[default]
    Run,
    /// The step of a parent that reads its children's ends and makes the result.
    Finish,
}

impl Phase {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Finish => "finish",
        }
    }
}

/// A node's right to write for one attempt of one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lease {
    pub task_id: TaskId,
    pub attempt: u32,
    pub token: LeaseToken,
}

/// Why an attempt did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskError {
    /// `retryable`, `rate_limited`, `fatal`, `timeout`, `crash`, `deadline`, `children`, …;
    /// `unknown` for what was written into the database by hand.
    pub class: String,
    /// For people.
    pub message: String,
    /// The chain of causes or the stack, if there is one.
    pub detail: Option<String>,
    /// When.
    pub at: Timestamp,
    /// Which attempt.
    pub attempt: u32,
}

impl TaskError {
    /// An error with its texts cut to what every store keeps.
    pub fn new(
        class: &str,
        message: &str,
        detail: Option<&str>,
        at: Timestamp,
        attempt: u32,
    ) -> Self {
        let detail = detail.map(storable);
        Self {
            class: storable(class),
            message: storable(message),
            detail,
            at,
            attempt,
        }
    }
}

fn storable(text: &str) -> String {
    bounds::cut(text.chars(), bounds::ERROR_BYTES)
}

/// How many children a parent has, by their ends. The rest are open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChildCounts {
    pub total: u32,
    pub completed: u32,
    pub with_errors: u32,
    /// `FAILED` and `DEAD_LETTER`.
    pub failed: u32,
    pub cancelled: u32,
}

impl ChildCounts {
    /// Children that have not ended.
    pub fn open(&self) -> u32 {
        let ended = [
            self.completed,
            self.with_errors,
            self.failed,
            self.cancelled,
        ];

        ended
            .iter()
            .fold(self.total, |open, ended| open.saturating_sub(*ended))
    }

    /// The status at which the parent ends once no child is open.
    pub const fn verdict(&self) -> Status {
        if self.with_errors == 0 && self.failed == 0 && self.cancelled == 0 {
            Status::Completed
        } else if self.completed == 0 && self.with_errors == 0 {
            Status::Failed
        } else {
            Status::CompletedWithErrors
        }
    }
}

/// One unit of work.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskRecord {
    pub id: TaskId,
    pub parent_id: Option<TaskId>,
    /// `userId` in the public contract.
    pub owner: String,
    pub tier: Option<String>,
    pub task_type: String,
    pub task_key: Option<String>,
    pub queue: QueueName,
    pub priority: u8,

    pub status: Status,
    pub phase: Phase,
    /// The fencing number: raised by each claim, never lowered.
    pub attempt: u32,
    pub max_attempts: u32,
    pub retry_count: u32,
    pub snooze_count: u32,
    pub crash_count: u32,
    /// Raised by each visible change.
    pub version: u64,

    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// When it may be claimed: `runAt`, `nextAttemptAt`.
    pub due_at: Timestamp,
    pub started_at: Option<Timestamp>,
    pub last_attempt_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    pub deadline_at: Option<Timestamp>,
    pub timeout_ms: Option<u64>,

    /// The token of the last attempt. It outlives the attempt, so that a repeated report is
    /// recognised.
    pub lease_token: Option<LeaseToken>,
    pub node_id: Option<NodeId>,
    pub host: Option<String>,

    pub children: ChildCounts,
    /// Whether the type has a `finish` step for parents.
    pub finish_step: bool,

    pub retry: RetryPolicy,
    pub parameters: Json,
    pub checkpoint: Option<Json>,
    pub progress: Option<Json>,
    pub result: Option<Json>,
    pub result_url: Option<String>,
    pub error: Option<TaskError>,
    pub memo: Option<Json>,
    pub correlation_id: Option<String>,
    pub trace_context: Option<String>,
    pub artifact_expires_at: Option<Timestamp>,
    pub artifact_state: Option<String>,
}

impl TaskRecord {
    /// The lease of the current attempt, while the task runs.
    pub fn lease(&self) -> Option<Lease> {
        match (self.status, self.lease_token) {
            (Status::Running, Some(token)) => Some(Lease {
                task_id: self.id,
                attempt: self.attempt,
                token,
            }),
            _ => None,
        }
    }

    /// Since when the task waits, or waited, for its attempt. Fair order may have made it due
    /// before it was made.
    pub fn waits_since(&self) -> Timestamp {
        self.due_at.max(self.created_at)
    }

    /// Whether `lease` is that of the last attempt, whether or not it is still running.
    pub fn is_last_attempt(&self, lease: &Lease) -> bool {
        self.attempt == lease.attempt && self.lease_token == Some(lease.token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_is_parsed_from_its_own_spelling() {
        for status in Status::ALL {
            assert_eq!(Status::parse(status.as_str()), Some(status));
        }
        assert_eq!(Status::parse("queued"), None);
    }

    #[test]
    fn error_texts_are_cut_between_characters_and_lose_nul_characters() {
        let error = TaskError::new(
            "fatal",
            &("\0".to_owned() + &"é".repeat(10_000)),
            None,
            Timestamp::default(),
            1,
        );

        assert_eq!(error.message.len(), bounds::ERROR_BYTES);
        assert!(error.message.chars().all(|c| c == 'é'));
    }

    #[test]
    fn the_children_decide_how_their_parent_ends() {
        let counts = |completed, with_errors, failed| ChildCounts {
            total: completed + with_errors + failed,
            completed,
            with_errors,
            failed,
            cancelled: 0,
        };

        assert_eq!(counts(3, 0, 0).verdict(), Status::Completed);
        assert_eq!(counts(0, 0, 3).verdict(), Status::Failed);
        assert_eq!(counts(1, 0, 2).verdict(), Status::CompletedWithErrors);
        assert_eq!(counts(0, 1, 0).verdict(), Status::CompletedWithErrors);
        assert_eq!(counts(2, 1, 0).verdict(), Status::CompletedWithErrors);
    }
}
