//! The event bus of one process.
//!
//! All listeners share one ring of events. Whoever falls behind by more than the ring's length is told how many events
//! it has missed; the count includes those that it would not have wanted, for they were gone before they were looked at.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_domain::{
    contract::event_bus::{EventBus, EventStream, Heard, Subscription},
    event::TaskEvent,
};
use tokio::sync::broadcast::{Receiver, Sender, error::RecvError};

/// Events in the ring at most. An event is some hundred bytes, so the longest ring is some hundred megabytes.
const MOST_EVENTS: usize = 1 << 20;

/// News of tasks, within the process. Dropping the bus ends its streams once they have heard what is left.
#[derive(Debug)]
pub struct MemoryEventBus {
    sender: Sender<Arc<TaskEvent>>,
}

impl MemoryEventBus {
    /// A bus whose listeners may fall behind by `capacity` events (rounded up to a power of two, at most 2^20).
    pub fn new(capacity: usize) -> Self {
        Self { sender: Sender::new(capacity.clamp(1, MOST_EVENTS)) }
    }
}

impl EventBus for MemoryEventBus {
    fn publish(&self, event: TaskEvent) {
        // It fails when nobody listens, and then there is nobody to tell.
        let _ = self.sender.send(Arc::new(event));
    }

    fn subscribe(&self, subscription: Subscription) -> Box<dyn EventStream> {
        Box::new(MemoryEventStream { receiver: self.sender.subscribe(), subscription })
    }
}

#[derive(Debug)]
struct MemoryEventStream {
    receiver: Receiver<Arc<TaskEvent>>,
    subscription: Subscription,
}

#[async_trait]
impl EventStream for MemoryEventStream {
    async fn next(&mut self) -> Option<Heard> {
        loop {
            match self.receiver.recv().await {
                Ok(event) if self.subscription.wants(&event) => {
                    return Some(Heard::Event(Arc::unwrap_or_clone(event)));
                }
                Ok(_) => {}
                Err(RecvError::Lagged(count)) => return Some(Heard::Missed(count)),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}
