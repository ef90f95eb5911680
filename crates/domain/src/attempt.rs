//! The history of a task's attempts.
//!
//! The last attempt is described by the task's own row until the task moves on from it; only then is
//! it written to the history. A task that succeeds at once therefore costs no history row, and the
//! view `v_attempts` shows both as one list.

use serde::{Deserialize, Serialize};

use crate::{
    ids::{NodeId, TaskId},
    task::{Status, Task, TaskError},
    time::Timestamp,
};

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttemptOutcome {
    Running,
    Completed,
    Failed,
    TimedOut,
    Snoozed,
    HandedBack,
    Crashed,
    Cancelled,
}

impl AttemptOutcome {
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

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.as_str() == text)
    }
}

/// One run of a task by a node.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Attempt {
    pub task_id: TaskId,
    pub attempt: u32,
    pub outcome: AttemptOutcome,
    pub node_id: Option<NodeId>,
    pub host: Option<String>,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub error: Option<TaskError>,
}

impl Attempt {
    /// The last attempt of `task`, ended as `outcome` at `ended_at`.
    pub fn of(task: &Task, outcome: AttemptOutcome, ended_at: Option<Timestamp>, error: Option<TaskError>) -> Self {
        Self {
            task_id: task.id,
            attempt: task.attempt,
            outcome,
            node_id: task.node_id,
            host: task.host.clone(),
            started_at: task.last_attempt_at,
            ended_at,
            error,
        }
    }

    /// The last attempt of `task` as its own row tells it, when the row still does.
    pub fn told_by(task: &Task) -> Option<Self> {
        let outcome = match task.status {
            Status::Running => AttemptOutcome::Running,
            Status::Completed | Status::CompletedWithErrors => AttemptOutcome::Completed,
            Status::Failed | Status::DeadLetter => AttemptOutcome::Failed,
            Status::Cancelled => AttemptOutcome::Cancelled,
            // The task has moved on: the attempt is in the history.
            Status::Queued | Status::Retrying | Status::Waiting => return None,
        };
        let error = task.error.clone().filter(|error| error.attempt == task.attempt);
        (task.attempt > 0).then(|| Self::of(task, outcome, task.finished_at, error))
    }
}
