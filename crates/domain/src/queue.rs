//! Queues: tasks that are isolated from others and can be paused together.

use crate::time::Timestamp;

/// A queue that tasks were submitted to, or that was paused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    pub name: String,
    /// Since when nothing is claimed from it.
    pub paused_at: Option<Timestamp>,
}
