//! Task events: what happened to a task, and what is sent about it.
//!
//! This is the only place where an event or its kind is derived from a task. Live listeners receive
//! a [`TaskEvent`]; the outbox carries the same change to the broker as an [`OutboxMessage`].

mod outbox;
mod selection;

use serde::{Deserialize, Serialize};

use crate::{
    contract::store::{AttemptEnd, AttemptReport},
    ids::TaskId,
    task::{Status, TaskRecord},
    task_info::TaskInfo,
};

pub use outbox::{LeasedMessage, MessageBody, OutboxMessage, OutboxPolicy, Topic};
pub use selection::{EventRule, EventSelection};

/// What happened to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    Submitted,
    Started,
    Progress,
    Waiting,
    Requeued,
    Retrying,
    Rescheduled,
    Completed,
    Failed,
    DeadLettered,
    Cancelled,
}

impl EventKind {
    pub const ALL: [Self; 11] = [
        Self::Submitted,
        Self::Started,
        Self::Progress,
        Self::Waiting,
        Self::Requeued,
        Self::Retrying,
        Self::Rescheduled,
        Self::Completed,
        Self::Failed,
        Self::DeadLettered,
        Self::Cancelled,
    ];

    /// The event of an existing task that has just moved to `status`.
    pub const fn of_status(status: Status) -> Self {
        match status {
            Status::Queued => Self::Requeued,
            Status::Running => Self::Started,
            Status::Retrying => Self::Retrying,
            Status::Waiting => Self::Waiting,
            Status::Completed | Status::CompletedWithErrors => Self::Completed,
            Status::Failed => Self::Failed,
            Status::Cancelled => Self::Cancelled,
            Status::DeadLetter => Self::DeadLettered,
        }
    }

    /// The kinds that may leave the process: every change of a task. Progress is for live
    /// listeners only, because it does not change the task.
    pub fn external() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|kind| *kind != Self::Progress)
    }

    /// Parses the spelling of [`Self::as_str`].
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// Whether the event carries the task's last error.
    const fn is_about_an_error(self) -> bool {
        match self {
            Self::Retrying | Self::Failed | Self::DeadLettered => true,
            Self::Submitted
            | Self::Started
            | Self::Progress
            | Self::Waiting
            | Self::Requeued
            | Self::Rescheduled
            | Self::Completed
            | Self::Cancelled => false,
        }
    }

    /// The spelling of the public contract.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::Started => "started",
            Self::Progress => "progress",
            Self::Waiting => "waiting",
            Self::Requeued => "requeued",
            Self::Retrying => "retrying",
            Self::Rescheduled => "rescheduled",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::DeadLettered => "dead_lettered",
            Self::Cancelled => "cancelled",
        }
    }
}

/// An event of one task. The id is the same wherever and however often it is sent, so a listener
/// can drop repeats. The version lets it drop what is older than what it shows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskEvent {
    pub task_id: TaskId,
    #[serde(rename = "userId")]
    pub owner: String,
    pub task_type: String,
    pub event: EventKind,
    pub status: Status,
    pub attempt: u32,
    pub version: u64,
    /// For progress: the number of the report in its attempt, because not every report changes the
    /// task's version. Otherwise 0.
    #[serde(default)]
    pub sequence: u64,
    /// For progress: what the handler reported.
    pub progress: Option<serde_json::Value>,
    /// The message of the last error, for failures and retries.
    pub error: Option<String>,
    /// The id that ties the task to a request of its submitter.
    #[serde(default)]
    pub correlation_id: Option<String>,
}

impl TaskEvent {
    /// The event of a task as its record stands.
    pub fn of(task: &TaskRecord, event: EventKind) -> Self {
        Self {
            task_id: task.id,
            owner: task.owner.clone(),
            task_type: task.task_type.clone(),
            event,
            status: task.status,
            attempt: task.attempt,
            version: task.version,
            sequence: 0,
            progress: None,
            error: task.error.as_ref().map(|error| error.message.clone()),
            correlation_id: task.correlation_id.clone(),
        }
    }

    /// The event of a task that was just made.
    pub fn submitted(
        task_id: TaskId,
        owner: &str,
        task_type: &str,
        correlation_id: Option<&str>,
    ) -> Self {
        Self {
            task_id,
            owner: owner.to_owned(),
            task_type: task_type.to_owned(),
            event: EventKind::Submitted,
            status: Status::Queued,
            attempt: 0,
            version: 1,
            sequence: 0,
            progress: None,
            error: None,
            correlation_id: correlation_id.map(str::to_owned),
        }
    }

    /// The event of an attempt that ended and left its task at `status` and `version`.
    pub fn attempt_ended(
        info: &TaskInfo,
        report: &AttemptReport,
        status: Status,
        version: u64,
    ) -> Self {
        let error = match &report.end {
            AttemptEnd::Failed { failure, .. } => Some(failure),
            AttemptEnd::Snoozed { reason, .. } => reason.as_ref(),
            AttemptEnd::Completed { .. } | AttemptEnd::HandedBack | AttemptEnd::Cancelled => None,
        };

        Self {
            task_id: report.lease.task_id,
            owner: info.owner.clone(),
            task_type: info.task_type.clone(),
            event: EventKind::of_status(status),
            status,
            attempt: report.lease.attempt,
            version,
            sequence: 0,
            progress: None,
            error: error.map(|failure| failure.message.clone()),
            correlation_id: info.correlation_id.clone(),
        }
    }

    /// A report of progress by the running attempt of `task`.
    pub fn progress(task: &TaskRecord, sequence: u64, progress: serde_json::Value) -> Self {
        Self {
            status: Status::Running,
            sequence,
            progress: Some(progress),
            error: None,
            ..Self::of(task, EventKind::Progress)
        }
    }

    /// Unique per change: the same change sent twice has the same id.
    pub fn id(&self) -> String {
        let kind = self.event.as_str();
        let id = format!("{}-{}-{kind}", self.task_id.0, self.version);

        if self.event == EventKind::Progress {
            format!("{id}-{}", self.sequence)
        } else {
            id
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_parsed_from_its_own_spelling() {
        for (index, kind) in EventKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
            assert_eq!(EventKind::parse(kind.as_str()), Some(kind));
        }
    }
}
