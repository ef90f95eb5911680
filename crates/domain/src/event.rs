//! What must happen outside after a change: messages that are committed with it (the outbox).

use serde::{Deserialize, Serialize};

use crate::{
    ids::TaskId,
    task::{Status, Task},
};

/// What happened to a task (R34).
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
    /// As it is told outside.
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

/// A piece of news about a task. The id is the same wherever and however often it is told, so a listener can drop what
/// it has seen; the version lets it drop what is older than what it shows.
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
    /// The number of the report in its attempt, for news of progress: the row is not written for each of them. Else 0.
    #[serde(default)]
    pub sequence: u64,
    /// What the handler reported, for news of progress.
    pub progress: Option<serde_json::Value>,
    /// The last error's message, for failures and retries.
    pub error: Option<String>,
    /// What ties the task to a request of its submitter's.
    #[serde(default)]
    pub correlation_id: Option<String>,
}

impl TaskEvent {
    /// Unique for what happened: the same change told twice has the same id.
    pub fn id(&self) -> String {
        let kind = self.event.as_str();
        let id = format!("{}-{}-{kind}", self.task_id.0, self.version);
        if self.event == EventKind::Progress { format!("{id}-{}", self.sequence) } else { id }
    }
}

/// Which messages a store writes beside its changes. Without a relay nobody reads them, so an embedded
/// store writes none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutboxPolicy {
    /// A bell for each task that becomes claimable.
    pub dispatch: bool,
    /// An event for each change of state.
    pub events: bool,
}

/// Where a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Topic {
    Dispatch,
    Event,
}

impl Topic {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dispatch => "dispatch",
            Self::Event => "event",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Dispatch, Self::Event].into_iter().find(|topic| topic.as_str() == text)
    }
}

/// The body of a message: ids and headers, never the only copy of anything.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageBody {
    pub event: EventKind,
    pub user_id: String,
    pub task_type: String,
    pub queue: String,
    pub priority: u8,
    pub status: Status,
    pub attempt: u32,
    pub retry_count: u32,
    pub version: u64,
    /// Microseconds since 1970; a bell before this moment is early.
    pub due_at: i64,
    /// When it happened, in microseconds since 1970; 0 in rows of older versions, which did not say.
    #[serde(default)]
    pub happened_at: i64,
    pub correlation_id: Option<String>,
    pub trace_context: Option<String>,
}

/// A message to be written to the outbox.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OutboxMessage {
    pub topic: Topic,
    pub task_id: TaskId,
    pub body: MessageBody,
}

/// A message that a relay holds for a while: it publishes, waits for the broker, and confirms.
#[derive(Debug, Clone, PartialEq)]
pub struct LeasedMessage {
    pub id: i64,
    /// How often it has been handed out, this time included.
    pub tries: u32,
    pub message: OutboxMessage,
}

impl OutboxPolicy {
    /// The messages that go with `event`, which left `task` as it is.
    pub fn messages(self, task: &Task, event: EventKind) -> Vec<OutboxMessage> {
        let wanted = [(Topic::Dispatch, self.dispatch && task.status.is_claimable()), (Topic::Event, self.events)];
        let message = |topic| OutboxMessage { topic, task_id: task.id, body: body(task, event) };
        wanted.into_iter().filter(|(_, on)| *on).map(|(topic, _)| message(topic)).collect()
    }

    /// Whether no message is ever written.
    pub const fn is_off(self) -> bool {
        !self.dispatch && !self.events
    }
}

fn body(task: &Task, event: EventKind) -> MessageBody {
    MessageBody {
        event,
        user_id: task.owner.clone(),
        task_type: task.task_type.clone(),
        queue: task.queue.clone(),
        priority: task.priority,
        status: task.status,
        attempt: task.attempt,
        retry_count: task.retry_count,
        version: task.version,
        due_at: task.due_at.as_micros(),
        happened_at: task.updated_at.as_micros(),
        correlation_id: task.correlation_id.clone(),
        trace_context: task.trace_context.clone(),
    }
}
