//! The names of the queues and exchanges at the broker, without the namespace that precedes them.

/// Receives hints. The routing key is `<queue>.<task type>`.
pub(crate) const EXCHANGE: &str = "tasks.exchange";
/// Receives hints that are to be delayed. The routing key names the delay queue.
pub(crate) const RETRY_EXCHANGE: &str = "tasks.retry.exchange";
/// Receives hints after their delay, under their original routing key.
pub(crate) const REQUEUE_EXCHANGE: &str = "tasks.requeue.exchange";
pub(crate) const DEAD_LETTER_EXCHANGE: &str = "tasks.dlx";
pub(crate) const DEAD_LETTER_QUEUE: &str = "tasks.dlq";
pub(crate) const EVENTS_EXCHANGE: &str = "tasks.events.exchange";
pub(crate) const PROGRESS_QUEUE: &str = "tasks.progress";
pub(crate) const CONTROL_EXCHANGE: &str = "tasks.control";
/// Carries task events between the processes.
pub(crate) const FANOUT_EXCHANGE: &str = "tasks.fanout";

/// The broker's queue for the hints of one task queue.
pub(crate) fn hint_queue(queue: &str) -> String {
    format!("tasks.{queue}")
}
