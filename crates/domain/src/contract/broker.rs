//! The broker: carries hints, signals, events and reported progress between processes.
//!
//! A hint has ids and headers and is never the only copy of anything. It may be lost, repeated or
//! late: its consumer claims the task in the store, or finds nothing to claim. [`Broker::state`]
//! says whether the broker is up. While it is down every operation fails fast, and nodes poll the
//! store instead.

use async_trait::async_trait;

use crate::{
    event::OutboxMessage,
    ids::TaskId,
    json::Json,
    names::QueueName,
    task::{Lease, TaskRecord},
    time::Timestamp,
};

/// "This task may be ready."
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    pub task_id: TaskId,
    pub owner: String,
    pub task_type: String,
    pub queue: QueueName,
    pub priority: u8,
    pub retry_count: u32,
    pub submitted_at: Timestamp,
    /// A hint before this moment is early.
    pub due_at: Timestamp,
    /// How many more times to look the task up, a moment later, when it does not exist yet: this
    /// hint was published before the commit of the submit.
    pub lookups: u8,
    pub correlation_id: Option<String>,
    pub trace_context: Option<String>,
}

impl Hint {
    /// The hint of a task as its record stands.
    pub fn of(task: &TaskRecord) -> Self {
        Self {
            task_id: task.id,
            owner: task.owner.clone(),
            task_type: task.task_type.clone(),
            queue: task.queue.clone(),
            priority: task.priority,
            retry_count: task.retry_count,
            submitted_at: task.created_at,
            due_at: task.due_at,
            lookups: 0,
            correlation_id: task.correlation_id.clone(),
            trace_context: task.trace_context.clone(),
        }
    }
}

/// The outcome of publishing a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    /// The broker has it.
    Confirmed,
    /// The broker refused it, or no queue takes it. A repetition may be refused as well.
    Refused(String),
    /// Unknown: the connection broke, or no answer came in time. Publish it again.
    Unknown(String),
}

impl Published {
    pub const fn is_confirmed(&self) -> bool {
        matches!(self, Self::Confirmed)
    }
}

/// A hint that a node has received and not acknowledged yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub hint: Hint,
    /// What [`HintConsumer::answered`] acknowledges it by.
    pub tag: u64,
}

/// Why an operation of the broker failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BrokerError {
    #[error("the broker is unavailable: {0}")]
    Unavailable(String),
    /// A queue or an exchange was declared with other properties. A person must decide.
    #[error("the broker's topology differs: {0}")]
    Topology(String),
}

/// Whether the broker can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BrokerState {
    Up,
    /// Why not.
    Down(String),
}

/// One consumer of a queue's hints.
#[async_trait]
pub trait HintConsumer: Send + std::fmt::Debug {
    /// Waits for hints and returns at most `most`; returns at once when that is 0. The broker sends
    /// no more than that ahead. A dropped call loses nothing: the next one returns what arrived.
    /// Survives an outage of the broker. Tags from before it are then void, and acknowledging them
    /// does nothing.
    async fn next(&mut self, most: usize) -> Vec<Delivery>;
    /// Acknowledges hints: the claim, or the decision not to claim, is committed. Hints that are
    /// not acknowledged when the consumer is dropped go back to the broker.
    async fn answered(&mut self, tags: &[u64]);
    /// No slot is free: the broker sends nothing more, and hints that are not acknowledged go back
    /// to it. The next call of [`Self::next`] resumes.
    async fn pause(&mut self);
}

/// A message from one node to all. A lost signal costs time and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(
    tag = "signal",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Signal {
    /// Tasks were cancelled: nodes that run them check their leases.
    Cancelled { task_ids: Vec<TaskId> },
    /// A queue was paused or resumed.
    QueueChanged { queue: String },
    /// The queues with more waiting tasks than the dispatcher publishes hints for. Submitting
    /// processes leave the hints of these queues to the dispatcher. All other queues are open. Sent
    /// once a second, and whenever it changes.
    Backlogged { queues: Vec<String> },
}

/// One listener to signals.
#[async_trait]
pub trait Signals: Send + std::fmt::Debug {
    /// The next signal; `None` when the broker is closed. A slow listener loses the oldest.
    async fn next(&mut self) -> Option<Signal>;
}

/// Progress that a remote worker reports.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgressReport {
    pub lease: Lease,
    /// The number of the report in its attempt, from 1.
    pub sequence: u64,
    pub progress: Json,
    /// Whether it is the last one, at 100 %.
    pub is_full: bool,
}

/// The consumer of reported progress.
#[async_trait]
pub trait ProgressInbox: Send + std::fmt::Debug {
    /// Waits for reports and returns at most `most`, with their tags. As [`HintConsumer::next`].
    async fn next(&mut self, most: usize) -> Vec<(u64, ProgressReport)>;
    /// Acknowledges reports: they are stored, or obsolete.
    async fn answered(&mut self, tags: &[u64]);
}

/// The traffic of one queue of the broker since this process started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    pub published: u64,
    pub delivered: u64,
    pub acked: u64,
    pub nacked: u64,
    pub returned: u64,
}

/// Hints, dead letters, events, progress and signals between processes.
#[async_trait]
pub trait Broker: Send + Sync + std::fmt::Debug {
    /// Declares the exchanges and the queues of these task queues. What exists stays; what differs
    /// is an error that names it. All that was declared or consumed is declared again after an
    /// outage.
    async fn declare(&self, queues: &[String]) -> Result<(), BrokerError>;
    /// Publishes hints now. One outcome for each, in order. Higher priorities overtake. A hint for
    /// an undeclared queue is refused.
    async fn publish_hints(&self, hints: &[Hint]) -> Vec<Published>;
    /// Publishes each hint after its delay in milliseconds, at most an hour. It may come early, by
    /// up to half the delay or 250 ms, but not much later.
    async fn publish_hints_later(&self, hints: &[(Hint, u64)]) -> Vec<Published>;
    /// Hints that wait in a queue, as the broker counts them. Received ones do not count.
    async fn depth(&self, queue: &str) -> Result<usize, BrokerError>;
    /// A consumer of a queue's hints. It takes nothing before its first call.
    fn hints(&self, queue: &str) -> Box<dyn HintConsumer>;

    /// Publishes outbox messages: events to the topic exchange, dead letters to the dead-letter
    /// queue. One outcome for each.
    async fn publish(&self, messages: &[OutboxMessage]) -> Vec<Published>;

    /// Sends a signal to all nodes, this one included. Never waits.
    fn signal(&self, signal: Signal);
    /// The signals from now on.
    fn signals(&self) -> Box<dyn Signals>;

    /// Sends progress to the progress collector. It is for workers without a store, which do not
    /// exist yet: a node writes the progress of its tasks to the store itself.
    async fn report_progress(&self, reports: &[ProgressReport]) -> Vec<Published>;
    /// A consumer of reported progress.
    fn progress_inbox(&self) -> Box<dyn ProgressInbox>;

    /// Whether the broker can be reached now.
    fn state(&self) -> BrokerState;
    /// Waits until the state is not `known` any more.
    async fn state_after(&self, known: &BrokerState) -> BrokerState;
    /// The traffic of each queue and exchange, by its name at the broker without the namespace.
    fn traffic(&self) -> Vec<(String, Traffic)>;
    /// Sends what is buffered and closes the connection.
    async fn close(&self);
}
