//! The event bus: publishes what happened to tasks to live listeners.
//!
//! Events are not the truth: a listener that missed some reads the store. Publishing never waits. A
//! slow listener holds up nothing: it loses the oldest events and receives their number.

use async_trait::async_trait;

use crate::{event::TaskEvent, ids::TaskId};

/// What a listener gets.
#[derive(Debug, Clone, PartialEq)]
pub enum Received {
    /// Something happened to a task.
    Event(TaskEvent),
    /// This many events were dropped because the listener was slow. What it shows may be stale.
    Missed(u64),
}

/// The events that a listener wants. Empty fields want everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subscription {
    /// Events of this task alone.
    pub task_id: Option<TaskId>,
    /// Events of this owner's tasks alone.
    pub owner: Option<String>,
}

impl Subscription {
    /// Whether the listener wants this event.
    pub fn wants(&self, event: &TaskEvent) -> bool {
        self.task_id.is_none_or(|id| id == event.task_id)
            && self.owner.as_ref().is_none_or(|own| *own == event.owner)
    }
}

/// One listener's end of the bus.
#[async_trait]
pub trait EventStream: Send + std::fmt::Debug {
    /// The next event; `None` when the bus is closed.
    async fn next(&mut self) -> Option<Received>;
}

/// Publishes task events.
pub trait EventBus: Send + Sync + std::fmt::Debug {
    fn publish(&self, event: TaskEvent);
    /// Whether this task may have a listener now, in this process or another; `true` when in doubt.
    /// Without one its events need not be built.
    fn has_listeners(&self, task_id: TaskId, owner: &str) -> bool {
        let _ = (task_id, owner);
        true
    }
    /// The events that are published from now on.
    fn subscribe(&self, subscription: Subscription) -> Box<dyn EventStream>;
}
