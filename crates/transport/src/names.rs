//! What the queues and exchanges of the broker are called. A namespace stands before all of them.

/// Bells come in here. The routing key is `<queue>.<task type>`.
pub(crate) const EXCHANGE: &str = "tasks.exchange";
/// Bells that must wait come in here, with the name of their rung as the key.
pub(crate) const RETRY_EXCHANGE: &str = "tasks.retry.exchange";
/// Bells that have waited come out here, with their first routing key.
pub(crate) const REQUEUE_EXCHANGE: &str = "tasks.requeue.exchange";
pub(crate) const DEAD_LETTER_EXCHANGE: &str = "tasks.dlx";
pub(crate) const DEAD_LETTER_QUEUE: &str = "tasks.dlq";
pub(crate) const EVENTS_EXCHANGE: &str = "tasks.events.exchange";
pub(crate) const PROGRESS_QUEUE: &str = "tasks.progress";
pub(crate) const CONTROL_EXCHANGE: &str = "tasks.control";
pub(crate) const NEWS_EXCHANGE: &str = "tasks.news";

/// The broker's queue for the bells of one queue of tasks.
pub(crate) fn lane(queue: &str) -> String {
    format!("tasks.{queue}")
}
