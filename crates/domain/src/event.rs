//! What must happen outside after a change: messages that are committed with it (the outbox).

use serde::{Deserialize, Serialize};

use crate::{
    event_selection::EventSelection,
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
    /// All of them.
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

    /// Those that the world can be told: every change of a task. Progress is for live listeners, for it is no change.
    pub fn external() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|kind| *kind != Self::Progress)
    }

    /// The kind of this spelling.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// Whether the task's last error is part of the news.
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
        if self.event == EventKind::Progress {
            format!("{id}-{}", self.sequence)
        } else {
            id
        }
    }
}

/// Which messages a store writes beside its changes. Without a relay nobody reads them, so an embedded
/// store writes none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OutboxPolicy {
    /// The changes that are told to the world.
    pub events: EventSelection,
    /// A message for each task that ends as `FAILED` or `DEAD_LETTER` (R18).
    pub dead_letters: bool,
}

/// Where a message goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Topic {
    Event,
    DeadLetter,
}

impl Topic {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::DeadLetter => "dead_letter",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Event, Self::DeadLetter]
            .into_iter()
            .find(|topic| topic.as_str() == text)
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
    /// Microseconds since 1970.
    pub due_at: i64,
    /// When it happened, in microseconds since 1970.
    #[serde(default)]
    pub occurred_at: i64,
    /// The last error's message, for failures and retries.
    #[serde(default)]
    pub error: Option<String>,
    /// The last error's class.
    #[serde(default)]
    pub error_class: Option<String>,
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

impl OutboxMessage {
    /// Unique for what happened: the same as that of the [`TaskEvent`] which tells it.
    pub fn event_id(&self) -> String {
        format!(
            "{}-{}-{}",
            self.task_id.0,
            self.body.version,
            self.body.event.as_str()
        )
    }
}

impl OutboxPolicy {
    /// A policy that tells everything: each change as an event, and each dead letter.
    pub fn everything() -> Self {
        Self {
            events: EventSelection::everything(),
            dead_letters: true,
        }
    }

    /// The messages that go with `event`, which left `task` as it is.
    pub fn messages(&self, task: &Task, event: EventKind) -> Vec<OutboxMessage> {
        let is_told = self.events.selects(event, &task.task_type);
        let is_dead =
            self.dead_letters && matches!(event, EventKind::Failed | EventKind::DeadLettered);
        let message = |topic| OutboxMessage {
            topic,
            task_id: task.id,
            body: body(task, event),
        };
        let wanted = [(Topic::Event, is_told), (Topic::DeadLetter, is_dead)];
        wanted
            .into_iter()
            .filter(|(_, on)| *on)
            .map(|(topic, _)| message(topic))
            .collect()
    }
}

fn body(task: &Task, event: EventKind) -> MessageBody {
    let error = task.error.as_ref().filter(|_| event.is_about_an_error());
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
        occurred_at: task.updated_at.as_micros(),
        error: error.map(|error| error.message.clone()),
        error_class: error.map(|error| error.class.clone()),
        correlation_id: task.correlation_id.clone(),
        trace_context: task.trace_context.clone(),
    }
}
