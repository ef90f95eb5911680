//! The broker: rings across processes for tasks that may be ready, and carries what nodes tell each other (R31 to R37).
//!
//! A bell carries ids and headers and is never the only copy of anything. It may be lost, repeated or late: whoever
//! hears it claims the task in the store, or finds that there is nothing to claim. A broker that is away is told by
//! [`Broker::state`]; everything here then fails fast, and nodes look into the store instead.

use async_trait::async_trait;

use crate::{event::OutboxMessage, ids::TaskId, json::Json, task::Lease, time::Timestamp};

/// "This task may be ready."
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bell {
    pub task_id: TaskId,
    pub owner: String,
    pub task_type: String,
    pub queue: String,
    pub priority: u8,
    pub retry_count: u32,
    pub submitted_at: Timestamp,
    /// A bell before this moment is early.
    pub due_at: Timestamp,
    /// How often to look again, a moment later, if there is no such task: it was rung for before its commit.
    pub looks: u8,
    pub correlation_id: Option<String>,
    pub trace_context: Option<String>,
}

/// What became of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Published {
    /// The broker has it.
    Confirmed,
    /// The broker would not have it: no queue takes it, or it was refused. The same again may well be refused again.
    Refused(String),
    /// Nobody knows: the connection broke, or no answer came in time. Publish it again.
    Unknown(String),
}

impl Published {
    pub const fn is_confirmed(&self) -> bool {
        matches!(self, Self::Confirmed)
    }
}

/// A bell in a node's hands, until it is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub bell: Bell,
    /// What [`Bells`] knows it by.
    pub tag: u64,
}

/// Why a broker does not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BrokerError {
    #[error("the broker is unavailable: {0}")]
    Unavailable(String),
    /// Somebody has declared a queue or an exchange otherwise. A person must decide.
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

/// One consumer of a queue's bells.
#[async_trait]
pub trait Bells: Send + std::fmt::Debug {
    /// Waits for bells and hands out at most `most`; nothing, at once, when that is none. The broker sends no more than
    /// that ahead. May be dropped in the middle: what has come is handed out by the next call. Survives a broker that
    /// goes and comes back; tags from before are then void, and answering them does nothing.
    async fn next(&mut self, most: usize) -> Vec<Delivery>;
    /// The claim, or the decision not to claim, is committed: these bells are done with. What is not answered when the
    /// consumer is dropped goes back to the broker.
    async fn answered(&mut self, tags: &[u64]);
    /// No slot is free: the broker sends nothing more, and what it has sent and nobody answered goes back to it. The
    /// next call of [`Self::next`] opens the consumer again.
    async fn pause(&mut self);
}

/// What nodes tell each other at once. Lost signals cost time and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(
    tag = "signal",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Signal {
    /// Tasks were cancelled: whoever runs one looks at its leases.
    Cancelled { task_ids: Vec<TaskId> },
    /// A queue was paused or resumed.
    QueueChanged { queue: String },
    /// Queues with more waiting tasks than the ringer has rung for: whoever submits to one leaves the ringing to it. All
    /// other queues are open. Told again and again, and whenever it changes.
    Held { queues: Vec<String> },
}

/// One listener to signals.
#[async_trait]
pub trait Signals: Send + std::fmt::Debug {
    /// The next signal; `None` when the broker is closed. A slow listener loses the oldest.
    async fn next(&mut self) -> Option<Signal>;
}

/// Progress that a remote worker reports (R37).
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
    /// Waits for reports and hands out at most `most`, with the tags to answer them by. As [`Bells::next`].
    async fn next(&mut self, most: usize) -> Vec<(u64, ProgressReport)>;
    /// They are kept, or not worth keeping.
    async fn answered(&mut self, tags: &[u64]);
}

/// What has gone over a queue of the broker since this process started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    pub published: u64,
    pub delivered: u64,
    pub acked: u64,
    pub nacked: u64,
    pub returned: u64,
}

/// Bells, dead letters, events, progress and signals between processes.
#[async_trait]
pub trait Broker: Send + Sync + std::fmt::Debug {
    /// Makes queues and exchanges, for these queues of tasks among others. What is there already stays; what differs is
    /// an error that names it. Everything that was declared or consumed once is made again when the broker comes back.
    async fn declare(&self, queues: &[String]) -> Result<(), BrokerError>;
    /// Rings now. One answer for each bell, in order. Higher priorities overtake. A bell for a queue that nobody has
    /// declared is refused.
    async fn ring(&self, bells: &[Bell]) -> Vec<Published>;
    /// Rings after so many milliseconds each, or earlier, by half of it or 250 ms at most; never much later. At most an hour.
    async fn ring_later(&self, bells: &[(Bell, u64)]) -> Vec<Published>;
    /// Bells that wait in a queue, as the broker counts them. Those in the hands of nodes do not count.
    async fn depth(&self, queue: &str) -> Result<usize, BrokerError>;
    /// A consumer of a queue's bells. It takes nothing before it is asked.
    fn bells(&self, queue: &str) -> Box<dyn Bells>;

    /// Tells the world: events to the topic exchange, dead letters to the queue of dead letters. One answer for each.
    async fn publish(&self, messages: &[OutboxMessage]) -> Vec<Published>;

    /// Tells all nodes, this one included. Never waits.
    fn signal(&self, signal: Signal);
    /// What nodes tell from now on.
    fn signals(&self) -> Box<dyn Signals>;

    /// Reports progress of tasks that run here to whoever keeps it.
    async fn report_progress(&self, reports: &[ProgressReport]) -> Vec<Published>;
    /// A consumer of reported progress.
    fn progress_inbox(&self) -> Box<dyn ProgressInbox>;

    /// Whether the broker can be reached now.
    fn state(&self) -> BrokerState;
    /// Waits until the state is another than `known`.
    async fn state_after(&self, known: &BrokerState) -> BrokerState;
    /// What has gone over each queue and exchange, by its name at the broker, without the namespace.
    fn traffic(&self) -> Vec<(String, Traffic)>;
    /// Delivers what waits and closes the connection.
    async fn close(&self);
}
