//! The outside of the processes: hints that can be lost, and an event bus without subscribers.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use longhaul_domain::{
    contract::{
        EventBus, Notifier,
        event_bus::{EventStream, Received, Subscription},
        notifier::HintedTask,
    },
    event::TaskEvent,
};

/// Delivers a hint to every process, unless hints are being dropped.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    flags: Mutex<Vec<(String, Arc<AtomicBool>)>>,
    drops: AtomicBool,
    lost: AtomicBool,
}

impl Hints {
    /// The flag that a hint sets for the process of this name, clear at first.
    pub(crate) fn of(&self, name: &str) -> Arc<AtomicBool> {
        let fresh = Arc::new(AtomicBool::new(false));
        let mut flags = self.flags.lock().unwrap_or_else(PoisonError::into_inner);

        // A process that starts again replaces the flag of the one before.
        flags.retain(|(known, _)| known != name);
        flags.push((name.to_owned(), Arc::clone(&fresh)));

        fresh
    }

    /// Whether hints are lost from now on.
    pub(crate) fn drop_hints(&self, drops: bool) {
        self.drops.store(drops, Ordering::Relaxed);
    }

    /// Whether a hint was lost since the last call.
    pub(crate) fn lost(&self) -> bool {
        self.lost.swap(false, Ordering::Relaxed)
    }
}

#[async_trait]
impl Notifier for Hints {
    fn notify(&self, _queue: &str) {
        if self.drops.load(Ordering::Relaxed) {
            return self.lost.store(true, Ordering::Relaxed);
        }

        let flags = self.flags.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, flag) in flags.iter() {
            flag.store(true, Ordering::Relaxed);
        }
    }

    async fn notified(&self) -> Vec<HintedTask> {
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
    async fn next(&mut self) -> Option<Received> {
        None
    }
}
