//! Why a handler is asked to stop.

/// Why a running handler should stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The task was cancelled, itself or with its parent.
    Cancelled,
    /// Another attempt has taken over, or the task has ended: what this attempt does no longer
    /// counts.
    Lost,
    /// The node shuts down.
    Drain,
}
