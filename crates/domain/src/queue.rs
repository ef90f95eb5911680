//! Queues: tasks that are isolated from others and can be paused together.

use crate::{names::QueueName, time::Timestamp};

/// A queue that tasks were submitted to, or that was paused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    pub name: QueueName,
    /// Since when nothing is claimed from it.
    pub paused_at: Option<Timestamp>,
}
