//! What lies outside of the processes: bells that can be missed, and a bus that nobody listens to.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use longhaul_domain::{
    contract::{
        Doorbell, EventBus,
        doorbell::RungFor,
        event_bus::{EventStream, Heard, Subscription},
    },
    event::TaskEvent,
};

/// A ring reaches every process, unless it is lost.
#[derive(Debug, Default)]
pub(crate) struct Bells {
    heard: Mutex<Vec<(String, Arc<AtomicBool>)>>,
    deaf: AtomicBool,
    lost: AtomicBool,
}

impl Bells {
    /// The bell of the process of this name, silent at first.
    pub(crate) fn of(&self, name: &str) -> Arc<AtomicBool> {
        let fresh = Arc::new(AtomicBool::new(false));
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.retain(|(known, _)| known != name);
        heard.push((name.to_owned(), Arc::clone(&fresh)));
        fresh
    }

    /// Whether rings are lost from now on.
    pub(crate) fn deafen(&self, deaf: bool) {
        self.deaf.store(deaf, Ordering::Relaxed);
    }

    /// Whether a ring was lost since the last question.
    pub(crate) fn lost(&self) -> bool {
        self.lost.swap(false, Ordering::Relaxed)
    }
}

#[async_trait]
impl Doorbell for Bells {
    fn ring(&self, _queue: &str) {
        if self.deaf.load(Ordering::Relaxed) {
            return self.lost.store(true, Ordering::Relaxed);
        }
        for (_, bell) in self
            .heard
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
        {
            bell.store(true, Ordering::Relaxed);
        }
    }

    async fn heard(&self) -> Vec<RungFor> {
        Vec::new()
    }
}

#[derive(Debug)]
pub(crate) struct SilentBus;

impl EventBus for SilentBus {
    fn publish(&self, _event: TaskEvent) {}

    fn subscribe(&self, _subscription: Subscription) -> Box<dyn EventStream> {
        Box::new(Self)
    }
}

#[async_trait]
impl EventStream for SilentBus {
    async fn next(&mut self) -> Option<Heard> {
        None
    }
}
