//! The event bus of one process.
//!
//! Listeners share rings of events. Whoever falls behind by more than the ring's length is told how many events it has
//! missed; the count includes those that it would not have wanted, for they were gone before they were looked at.
//!
//! Those who listen to one task or to one owner are spread over many rings, so that an event wakes few of thousands who
//! wait for something else. A ring is made when its first listener comes.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use longhaul_domain::{
    TaskId,
    contract::event_bus::{EventBus, EventStream, Heard, Subscription},
    event::TaskEvent,
};
use tokio::sync::broadcast::{Receiver, Sender, error::RecvError};

/// Events in the ring at most. An event is some hundred bytes, so the longest ring is some hundred megabytes.
const MOST_EVENTS: usize = 1 << 20;

/// Rings for listeners to single tasks, and as many for those to owners: one event wakes a 64th of each.
const RINGS: usize = 64;

type Ring = OnceLock<Sender<News>>;

/// What goes through a ring.
#[derive(Debug, Clone)]
enum News {
    Event(Arc<TaskEvent>),
    /// Events that were lost on the way to this process.
    Missed(u64),
}

/// News of tasks, within the process. Dropping the bus ends its streams once they have heard what is left.
#[derive(Debug)]
pub struct MemoryEventBus {
    capacity: usize,
    hasher: RandomState,
    everything: Ring,
    of_tasks: [Ring; RINGS],
    of_owners: [Ring; RINGS],
}

impl MemoryEventBus {
    /// A bus whose listeners may fall behind by `capacity` events (rounded up to a power of two, at most 2^20).
    pub fn new(capacity: usize) -> Self {
        let rings = || std::array::from_fn(|_| Ring::new());
        Self {
            capacity: capacity.clamp(1, MOST_EVENTS),
            hasher: RandomState::new(),
            everything: Ring::new(),
            of_tasks: rings(),
            of_owners: rings(),
        }
    }

    /// Tells every listener that so many events never got here; what they show may be stale.
    pub fn tell_missed(&self, count: u64) {
        let rings = [&self.everything]
            .into_iter()
            .chain(&self.of_tasks)
            .chain(&self.of_owners);
        for ring in rings.filter_map(Ring::get) {
            let _ = ring.send(News::Missed(count));
        }
    }

    /// The rings that news of this task goes through, as far as anybody has ever listened to them.
    fn rings_of(&self, id: TaskId, owner: &str) -> impl Iterator<Item = &Sender<News>> {
        [&self.everything, self.of_task(id), self.of_owner(owner)]
            .into_iter()
            .filter_map(Ring::get)
    }

    fn of_task(&self, id: TaskId) -> &Ring {
        &self.of_tasks[self.place(id)]
    }

    fn of_owner(&self, owner: &str) -> &Ring {
        &self.of_owners[self.place(owner)]
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "what is left after the division is small"
    )]
    fn place(&self, of: impl std::hash::Hash) -> usize {
        (self.hasher.hash_one(of) % RINGS as u64) as usize
    }
}

impl EventBus for MemoryEventBus {
    fn publish(&self, event: TaskEvent) {
        let event = Arc::new(event);
        for ring in self.rings_of(event.task_id, &event.owner) {
            // It fails when nobody listens, and then there is nobody to tell.
            let _ = ring.send(News::Event(Arc::clone(&event)));
        }
    }

    fn is_heard(&self, task_id: TaskId, owner: &str) -> bool {
        self.rings_of(task_id, owner)
            .any(|ring| ring.receiver_count() > 0)
    }

    fn subscribe(&self, subscription: Subscription) -> Box<dyn EventStream> {
        let ring = match (&subscription.task_id, &subscription.owner) {
            (Some(id), _) => self.of_task(*id),
            (None, Some(owner)) => self.of_owner(owner),
            (None, None) => &self.everything,
        };
        let receiver = ring.get_or_init(|| Sender::new(self.capacity)).subscribe();
        Box::new(MemoryEventStream {
            receiver,
            subscription,
        })
    }
}

#[derive(Debug)]
struct MemoryEventStream {
    receiver: Receiver<News>,
    subscription: Subscription,
}

#[async_trait]
impl EventStream for MemoryEventStream {
    async fn next(&mut self) -> Option<Heard> {
        loop {
            match self.receiver.recv().await {
                Ok(News::Event(event)) if self.subscription.wants(&event) => {
                    return Some(Heard::Event(Arc::unwrap_or_clone(event)));
                }
                Ok(News::Event(_)) => {}
                Ok(News::Missed(count)) => return Some(Heard::Missed(count)),
                Err(RecvError::Lagged(count)) => return Some(Heard::Missed(count)),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_hears_of_a_task_once_its_listeners_have_gone() {
        let (bus, task) = (MemoryEventBus::new(4), TaskId(uuid::Uuid::from_u128(1)));
        assert!(!bus.is_heard(task, "ann"));
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
            assert!(bus.is_heard(task, "ann"));
            drop(stream);
        }
        assert!(!bus.is_heard(task, "ann"));
    }
}
