//! The event bus: what changed, to whoever listens (R34).
//!
//! Events are news, not the truth: a listener that missed some reads the store. Publishing never waits, and a slow
//! listener never holds up anybody: it loses the oldest events and is told how many.

use async_trait::async_trait;

use crate::{event::TaskEvent, ids::TaskId};

/// What a listener gets.
#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    /// Something happened to a task.
    Event(TaskEvent),
    /// So many events were dropped because the listener was slow; what it shows may be stale.
    Missed(u64),
}

/// What a listener wants to hear. Empty fields want everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subscription {
    /// News of this task alone.
    pub task_id: Option<TaskId>,
    /// News of this owner's tasks alone.
    pub owner: Option<String>,
}

impl Subscription {
    /// Whether this listener wants to hear of it.
    pub fn wants(&self, event: &TaskEvent) -> bool {
        self.task_id.is_none_or(|id| id == event.task_id)
            && self.owner.as_ref().is_none_or(|own| *own == event.owner)
    }
}

/// One listener's end of the bus.
#[async_trait]
pub trait EventStream: Send + std::fmt::Debug {
    /// The next piece of news; `None` when the bus is closed.
    async fn next(&mut self) -> Option<Heard>;
}

/// News of tasks.
pub trait EventBus: Send + Sync + std::fmt::Debug {
    fn publish(&self, event: TaskEvent);
    /// Whether anybody, in this process or in another, may hear of this task now; `true` when in doubt. If not, its events need
    /// not even be made.
    fn is_heard(&self, task_id: TaskId, owner: &str) -> bool {
        let _ = (task_id, owner);
        true
    }
    /// Everything that is published from now on.
    fn subscribe(&self, subscription: Subscription) -> Box<dyn EventStream>;
}
