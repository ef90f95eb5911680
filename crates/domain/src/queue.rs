//! Queues: isolated lanes of tasks that people can pause.

use crate::time::Timestamp;

/// A queue that tasks were submitted to, or that somebody paused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Queue {
    pub name: String,
    /// Since when nothing is claimed from it.
    pub paused_at: Option<Timestamp>,
}
