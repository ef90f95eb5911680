//! The history of a task's attempts.
//!
//! The task's own row describes the last attempt until the task moves on from it; only then is it
//! written to the history. A task that succeeds at once therefore costs no history row. The view
//! `v_attempts` shows both as one list.

use serde::{Deserialize, Serialize};

use crate::{
    ids::{NodeId, TaskId},
    task::{Status, TaskError, TaskRecord},
    time::Timestamp,
};

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptEndKind {
    /// Has not ended.
    Running,
    /// Returned a result.
    Completed,
    /// Returned an error, or panicked.
    Failed,
    /// Ended by its timeout, its silence, or the deadline of its task.
    TimedOut,
    /// Put itself back to run later.
    Snoozed,
    /// Returned by a node that shut down.
    HandedBack,
    /// Its node died.
    Crashed,
    /// Cancelled.
    Cancelled,
}

impl AttemptEndKind {
    pub const ALL: [Self; 8] = [
        Self::Running,
        Self::Completed,
        Self::Failed,
        Self::TimedOut,
        Self::Snoozed,
        Self::HandedBack,
        Self::Crashed,
        Self::Cancelled,
    ];

    /// The spelling in the store.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Snoozed => "snoozed",
            Self::HandedBack => "handed_back",
            Self::Crashed => "crashed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Parses the spelling of [`Self::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// One run of a task by a node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Attempt {
    pub task_id: TaskId,
    /// Numbered from 1.
    pub attempt: u32,
    /// How it ended.
    #[serde(rename = "outcome")]
    pub end: AttemptEndKind,
    /// Where it ran.
    pub node_id: Option<NodeId>,
    /// The name of that node's host.
    pub host: Option<String>,
    /// When it was claimed.
    pub started_at: Option<Timestamp>,
    /// When its end was recorded.
    pub ended_at: Option<Timestamp>,
    /// Why it did not complete.
    pub error: Option<TaskError>,
}

impl Attempt {
    /// The last attempt of `task`, ended as `end` at `ended_at`.
    pub fn of(
        task: &TaskRecord,
        end: AttemptEndKind,
        ended_at: Option<Timestamp>,
        error: Option<TaskError>,
    ) -> Self {
        Self {
            task_id: task.id,
            attempt: task.attempt,
            end,
            node_id: task.node_id,
            host: task.host.clone(),
            started_at: task.last_attempt_at,
            ended_at,
            error,
        }
    }

    /// The last attempt of `task` as its own row describes it; `None` once the task has moved on.
    pub fn of_row(task: &TaskRecord) -> Option<Self> {
        let end = match task.status {
            Status::Running => AttemptEndKind::Running,
            Status::Completed | Status::CompletedWithErrors => AttemptEndKind::Completed,
            Status::Failed | Status::DeadLetter => AttemptEndKind::Failed,
            Status::Cancelled => AttemptEndKind::Cancelled,
            // The task has moved on: the attempt is in the history.
            Status::Queued | Status::Retrying | Status::Waiting => return None,
        };

        let error = task
            .error
            .clone()
            .filter(|error| error.attempt == task.attempt);

        (task.attempt > 0).then(|| Self::of(task, end, task.finished_at, error))
    }
}
