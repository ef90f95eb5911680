//! The doorbell: a hint that a queue may have work. It may be lost, repeated or late; nothing rests on it but speed.

use async_trait::async_trait;

use crate::ids::TaskId;

/// A due task that a ring is about. Whoever hears it can claim it by its id instead of looking for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RungFor {
    pub task_id: TaskId,
    pub queue: String,
    pub task_type: String,
}

/// Rings and hears.
#[async_trait]
pub trait Doorbell: Send + Sync + std::fmt::Debug {
    /// Says that `queue` may have work. Never waits; many rings may become one.
    fn ring(&self, queue: &str);
    /// Takes the turn to ring within the commit of a submit that begins now, by [`crate::NewTask::rings`], if the bell is at
    /// rest. Whoever has it need not ring after the commit, but says that it is [`rung`](Self::rung).
    fn take_turn(&self) -> bool {
        false
    }
    /// Says that a commit has rung. Whoever waits in this process hears it in any case.
    fn rung(&self) {}
    /// Waits for a ring since the last call, and answers with the tasks that were rung for; none, if there may be others. May
    /// return without a ring.
    async fn heard(&self) -> Vec<RungFor>;
}
