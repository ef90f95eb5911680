//! Messages that are committed together with a change of a task: the outbox.

use serde::{Deserialize, Serialize};

use super::{EventKind, EventSelection};
use crate::{
    ids::TaskId,
    task::{Status, TaskRecord},
};

/// Which messages a store writes beside its changes. An embedded store writes none, because no
/// relay reads them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OutboxPolicy {
    /// The events that are published to the broker.
    pub events: EventSelection,
    /// Whether each task that ends as `FAILED` or `DEAD_LETTER` gets a message.
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
    /// The message of the last error, for failures and retries.
    #[serde(default)]
    pub error: Option<String>,
    /// The class of the last error.
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

/// A message that a relay has leased: it publishes, waits for the broker, and confirms.
#[derive(Debug, Clone, PartialEq)]
pub struct LeasedMessage {
    pub id: i64,
    /// How often it has been leased, this time included.
    pub tries: u32,
    pub message: OutboxMessage,
}

impl OutboxMessage {
    /// Unique per change, and equal to the id of the [`TaskEvent`](super::TaskEvent) of the same
    /// change.
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
    /// A policy that selects each change as an event, and each dead letter.
    pub fn everything() -> Self {
        Self {
            events: EventSelection::everything(),
            dead_letters: true,
        }
    }

    /// The messages of `event`, which left `task` as it is.
    pub fn messages(&self, task: &TaskRecord, event: EventKind) -> Vec<OutboxMessage> {
        let is_dead_letter = matches!(event, EventKind::Failed | EventKind::DeadLettered);
        let message = |topic| OutboxMessage {
            topic,
            task_id: task.id,
            body: body(task, event),
        };

        let mut messages = Vec::new();
        if self.events.selects(event, &task.task_type) {
            messages.push(message(Topic::Event));
        }
        if self.dead_letters && is_dead_letter {
            messages.push(message(Topic::DeadLetter));
        }

        messages
    }
}

fn body(task: &TaskRecord, event: EventKind) -> MessageBody {
    let error = if event.is_about_an_error() {
        task.error.as_ref()
    } else {
        None
    };

    MessageBody {
        event,
        user_id: task.owner.clone(),
        task_type: task.task_type.clone(),
        queue: task.queue.to_string(),
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
