//! The event bus of one process.
//!
//! Listeners share broadcast channels. A listener that lags behind by more than the capacity of its
//! channel learns how many events it has missed. The count includes events that it would have
//! filtered out, because they were dropped before the filter saw them.
//!
//! Listeners to one task or to one owner are spread over many channels, so that an event wakes only
//! a few of the thousands that wait for something else. A channel is made for its first listener.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use longhaul_domain::{
    TaskId,
    contract::event_bus::{EventBus, EventStream, Received, Subscription},
    event::TaskEvent,
};
use tokio::sync::broadcast::{Receiver, Sender, error::RecvError};

/// The largest capacity of a channel. An event has some hundred bytes, so the largest channel has
/// some hundred megabytes.
const MAX_CAPACITY: usize = 1 << 20;

/// How many channels there are for listeners to single tasks, and as many for listeners to owners:
/// an event wakes one in 64 of each.
const SHARDS: usize = 64;

/// A channel, once it has had a listener.
type Shard = OnceLock<Sender<Message>>;

/// What goes through a channel.
#[derive(Debug, Clone)]
enum Message {
    Event(Arc<TaskEvent>),
    /// How many events were lost on the way to this process.
    Missed(u64),
}

/// The task events of one process. After the bus is dropped, its streams deliver what is left and
/// then end.
#[derive(Debug)]
pub struct MemoryEventBus {
    capacity: usize,
    hasher: RandomState,
    all: Shard,
    by_task: [Shard; SHARDS],
    by_owner: [Shard; SHARDS],
}

impl MemoryEventBus {
    /// A bus whose listeners may lag behind by `capacity` events (rounded up to a power of two, at
    /// most 2^20).
    pub fn new(capacity: usize) -> Self {
        let shards = || std::array::from_fn(|_| Shard::new());
        Self {
            capacity: capacity.clamp(1, MAX_CAPACITY),
            hasher: RandomState::new(),
            all: Shard::new(),
            by_task: shards(),
            by_owner: shards(),
        }
    }

    /// Tells every listener that `count` events did not arrive, so what it shows may be stale.
    pub fn report_missed(&self, count: u64) {
        let shards = [&self.all]
            .into_iter()
            .chain(&self.by_task)
            .chain(&self.by_owner);

        for channel in shards.filter_map(Shard::get) {
            // Sending fails when there is no listener, which is no error.
            let _ = channel.send(Message::Missed(count));
        }
    }

    /// The channels that an event of this task goes through. A channel that never had a listener
    /// does not exist.
    fn channels_of(&self, id: TaskId, owner: &str) -> impl Iterator<Item = &Sender<Message>> {
        [&self.all, self.task_shard(id), self.owner_shard(owner)]
            .into_iter()
            .filter_map(Shard::get)
    }

    fn task_shard(&self, id: TaskId) -> &Shard {
        &self.by_task[self.shard_index(id)]
    }

    fn owner_shard(&self, owner: &str) -> &Shard {
        &self.by_owner[self.shard_index(owner)]
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the remainder of the division is small"
    )]
    fn shard_index(&self, of: impl Hash) -> usize {
        (self.hasher.hash_one(of) % SHARDS as u64) as usize
    }
}

impl EventBus for MemoryEventBus {
    fn publish(&self, event: TaskEvent) {
        let event = Arc::new(event);
        for channel in self.channels_of(event.task_id, &event.owner) {
            // Sending fails when there is no listener, which is no error.
            let _ = channel.send(Message::Event(Arc::clone(&event)));
        }
    }

    fn has_listeners(&self, task_id: TaskId, owner: &str) -> bool {
        self.channels_of(task_id, owner)
            .any(|channel| channel.receiver_count() > 0)
    }

    fn subscribe(&self, subscription: Subscription) -> Box<dyn EventStream> {
        let shard = match (&subscription.task_id, &subscription.owner) {
            (Some(id), _) => self.task_shard(*id),
            (None, Some(owner)) => self.owner_shard(owner),
            (None, None) => &self.all,
        };
        let channel = shard.get_or_init(|| Sender::new(self.capacity));

        Box::new(MemoryEventStream {
            receiver: channel.subscribe(),
            subscription,
        })
    }
}

#[derive(Debug)]
struct MemoryEventStream {
    receiver: Receiver<Message>,
    subscription: Subscription,
}

#[async_trait]
impl EventStream for MemoryEventStream {
    async fn next(&mut self) -> Option<Received> {
        loop {
            match self.receiver.recv().await {
                Ok(Message::Event(event)) if self.subscription.wants(&event) => {
                    return Some(Received::Event(Arc::unwrap_or_clone(event)));
                }
                Ok(Message::Event(_)) => {}
                Ok(Message::Missed(count)) => return Some(Received::Missed(count)),
                Err(RecvError::Lagged(count)) => return Some(Received::Missed(count)),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_has_no_listeners_once_their_streams_are_dropped() {
        let bus = MemoryEventBus::new(4);
        let task = TaskId(uuid::Uuid::from_u128(1));
        assert!(!bus.has_listeners(task, "ann"));

        let streams = [
            bus.subscribe(Subscription {
                task_id: Some(task),
                owner: None,
            }),
            bus.subscribe(Subscription {
                task_id: None,
                owner: Some("ann".to_owned()),
            }),
            bus.subscribe(Subscription::default()),
        ];
        for stream in streams {
            assert!(bus.has_listeners(task, "ann"));
            drop(stream);
        }

        assert!(!bus.has_listeners(task, "ann"));
    }
}
