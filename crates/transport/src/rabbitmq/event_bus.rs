//! The event bus of many processes: each has a bus in memory, and sends its events to the others.
//!
//! A process starts to receive the events of the others with its first listener, so that processes
//! without listeners cost the others nothing. Listeners learn of every possible loss: before the
//! queue was there, after the link broke, and where the numbers of another process have a gap.

use std::sync::Arc;

use longhaul_domain::{
    contract::event_bus::{EventBus, EventStream, Subscription},
    event::TaskEvent,
};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    RabbitBroker,
    connection::Shared,
    remote_events::{Reception, receive_events, send_events},
};
use crate::local::MemoryEventBus;

/// The most events that wait to be sent to the others. Beyond that events are lost, and the others
/// see a gap.
const MAX_OUTGOING: usize = 10_000;

/// The task events of all processes on one broker.
#[derive(Debug)]
pub struct RabbitEventBus {
    local: Arc<MemoryEventBus>,
    shared: Arc<Shared>,
    outgoing: Mutex<OutgoingEvents>,
    reception: Arc<Reception>,
    closed: CancellationToken,
    _close: DropGuard,
}

#[derive(Debug)]
struct OutgoingEvents {
    next_number: u64,
    sender: mpsc::Sender<(u64, TaskEvent)>,
}

impl RabbitEventBus {
    /// A bus whose own listeners are served by `local`. Must be called on a tokio runtime.
    pub fn new(broker: &Arc<RabbitBroker>, local: MemoryEventBus) -> Self {
        let (sender, to_send) = mpsc::channel(MAX_OUTGOING);
        let closed = CancellationToken::new();
        // It ends when the bus drops the sender.
        tokio::spawn(send_events(Arc::clone(&broker.shared), to_send));

        Self {
            local: Arc::new(local),
            shared: Arc::clone(&broker.shared),
            outgoing: Mutex::new(OutgoingEvents {
                next_number: 0,
                sender,
            }),
            reception: Arc::default(),
            closed: closed.clone(),
            _close: closed.drop_guard(),
        }
    }

    /// Starts to receive the events of the other processes, and waits until it does. The first
    /// listener also starts it, without waiting, and learns that it may have missed events.
    pub async fn listen(&self) {
        self.start_reception();
        self.reception.ready().await;
    }

    fn start_reception(&self) {
        if !self.reception.start() {
            return;
        }

        let receive = receive_events(
            Arc::clone(&self.shared),
            Arc::downgrade(&self.local),
            Arc::clone(&self.reception),
        );
        let closed = self.closed.clone();
        // It ends when the bus is dropped.
        tokio::spawn(async move { closed.run_until_cancelled(receive).await });
    }
}

/// Listeners in other processes are unknown here, so every task counts as having one.
impl EventBus for RabbitEventBus {
    fn publish(&self, event: TaskEvent) {
        self.local.publish(event.clone());

        // The lock orders numbering and sending. A full channel uses up the number all the same, so
        // that the others see the gap.
        let mut outgoing = self.outgoing.lock();
        let _ = outgoing.sender.try_send((outgoing.next_number, event));
        outgoing.next_number += 1;
    }

    fn subscribe(&self, subscription: Subscription) -> Box<dyn EventStream> {
        let stream = self.local.subscribe(subscription);
        self.start_reception();
        self.reception.note_listener();
        stream
    }
}
