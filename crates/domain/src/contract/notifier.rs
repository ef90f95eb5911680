//! The notifier: wakes nodes when a queue may have work. A notification may be lost, repeated or
//! late; only speed depends on it.

use async_trait::async_trait;

use crate::{ids::TaskId, names::QueueName};

/// A due task of a notification. Its receiver can claim it by id instead of searching the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HintedTask {
    pub task_id: TaskId,
    pub queue: QueueName,
    pub task_type: String,
}

/// Notifies and waits for notifications.
#[async_trait]
pub trait Notifier: Send + Sync + std::fmt::Debug {
    /// Notifies that `queue` may have work; an empty name stands for any queue. Never waits;
    /// several notifications may become one.
    fn notify(&self, queue: &str);
    /// Whether the submit that begins now may notify within its commit, by
    /// [`crate::NewTask::notifies`]; one submit at a time may. It then need not notify after the
    /// commit, but calls [`notified_in_commit`](Self::notified_in_commit).
    fn take_turn(&self) -> bool {
        false
    }
    /// A commit has notified. Waiting components of this process are woken in any case.
    fn notified_in_commit(&self) {}
    /// Waits for a notification since the last call. Returns the tasks that it was for; none, if
    /// there may be others. May return without a notification.
    async fn notified(&self) -> Vec<HintedTask>;
}
