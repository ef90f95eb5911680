//! What an engine is put together from.

use std::sync::Arc;

use longhaul_domain::contract::{Broker, Doorbell, EventBus, ProgressCache, Store};

use crate::Engine;

/// The parts of an [`Engine`]: those that each has, and those that a fleet adds.
#[derive(Debug)]
pub struct Parts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) bus: Arc<dyn EventBus>,
    pub(crate) doorbell: Arc<dyn Doorbell>,
    pub(crate) broker: Option<Arc<dyn Broker>>,
    pub(crate) progress_cache: Option<Arc<dyn ProgressCache>>,
}

impl Parts {
    /// With a broker, the doorbell is that of this process alone: others hear over the broker.
    pub fn new(store: Arc<dyn Store>, bus: Arc<dyn EventBus>, doorbell: Arc<dyn Doorbell>) -> Self {
        Self {
            store,
            bus,
            doorbell,
            broker: None,
            progress_cache: None,
        }
    }

    /// Rings across processes over this broker, if there is one.
    #[must_use]
    pub fn broker(mut self, broker: Option<Arc<dyn Broker>>) -> Self {
        self.broker = broker;
        self
    }

    /// Where the progress of tasks is that run elsewhere. Without it, only what runs in this process is known before the
    /// store has it.
    #[must_use]
    pub fn progress_cache(mut self, cache: Option<Arc<dyn ProgressCache>>) -> Self {
        self.progress_cache = cache;
        self
    }

    /// The engine. With a broker it listens to signals, and a shared progress cache is fed: both take a runtime to call
    /// this on.
    pub fn build(self) -> Arc<Engine> {
        Engine::from_parts(self)
    }
}
