//! The event bus of many processes: each has its own in memory, and they tell each other what they publish.
//!
//! A process begins to hear the others with its first listener, so that those without listeners cost the others
//! nothing. Whatever may have been missed is told as missed: before the queue stood, after the link broke, and where the
//! numbers of another process have a gap.

use std::sync::{Arc, Mutex};

use longhaul_domain::{
    contract::event_bus::{EventBus, EventStream, Subscription},
    event::TaskEvent,
};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{
    RabbitBroker,
    connection::Shared,
    link::lock,
    news::{self, Ears},
};
use crate::local::MemoryEventBus;

/// Events that wait to be told to the others; beyond that they are lost, and the others hear of a gap.
const MOST_OUTGOING: usize = 10_000;

/// News of tasks, of all processes on one broker.
#[derive(Debug)]
pub struct RabbitEventBus {
    local: Arc<MemoryEventBus>,
    shared: Arc<Shared>,
    /// The number of the next event, and where it goes.
    outgoing: Mutex<(u64, mpsc::Sender<(u64, TaskEvent)>)>,
    ears: Arc<Ears>,
    closed: CancellationToken,
    _close: DropGuard,
}

impl RabbitEventBus {
    /// A bus whose own listeners are served by `local`. Must be called on a tokio runtime.
    pub fn new(broker: &Arc<RabbitBroker>, local: MemoryEventBus) -> Self {
        let (outgoing, to_tell) = mpsc::channel(MOST_OUTGOING);
        let closed = CancellationToken::new();
        tokio::spawn(news::tell(Arc::clone(&broker.shared), to_tell));
        Self {
            local: Arc::new(local),
            shared: Arc::clone(&broker.shared),
            outgoing: Mutex::new((0, outgoing)),
            ears: Arc::new(Ears::default()),
            closed: closed.clone(),
            _close: closed.drop_guard(),
        }
    }

    /// Begins to hear the other processes, and waits until it does. The first listener begins it as well, but does not
    /// wait, and is told that it may have missed something.
    pub async fn listen(&self) {
        self.begin();
        let mut ready: watch::Receiver<bool> = self.ears.ready();
        let _ = ready.wait_for(|ready| *ready).await;
    }

    fn begin(&self) {
        if self.ears.begin() {
            let listen = news::listen(
                Arc::clone(&self.shared),
                Arc::downgrade(&self.local),
                Arc::clone(&self.ears),
            );
            let closed = self.closed.clone();
            tokio::spawn(async move { closed.run_until_cancelled(listen).await });
        }
    }
}

/// Who listens elsewhere is not known here, so every task counts as heard.
impl EventBus for RabbitEventBus {
    fn publish(&self, event: TaskEvent) {
        self.local.publish(event.clone());
        let mut outgoing = lock(&self.outgoing);
        let (number, sender) = &mut *outgoing;
        // When it is full the number is used up all the same: so the others see the gap.
        let _ = sender.try_send((*number, event));
        *number += 1;
    }

    fn subscribe(&self, subscription: Subscription) -> Box<dyn EventStream> {
        let stream = self.local.subscribe(subscription);
        self.begin();
        self.ears.note_listener();
        stream
    }
}
