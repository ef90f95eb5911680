//! An engine without listeners, for tests.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_domain::{
    contract::{
        EventBus, Notifier, Store,
        event_bus::{EventStream, Received, Subscription},
        notifier::HintedTask,
    },
    event::TaskEvent,
};
use longhaul_engine::Engine;

#[derive(Debug)]
struct Silent;

#[async_trait]
impl Notifier for Silent {
    fn notify(&self, _queue: &str) {}

    async fn notified(&self) -> Vec<HintedTask> {
        std::future::pending().await
    }
}

#[async_trait]
impl EventStream for Silent {
    async fn next(&mut self) -> Option<Received> {
        None
    }
}

impl EventBus for Silent {
    fn publish(&self, _event: TaskEvent) {}

    fn subscribe(&self, _subscription: Subscription) -> Box<dyn EventStream> {
        Box::new(Self)
    }
}

pub(crate) fn engine(store: impl Store + 'static) -> Arc<Engine> {
    Engine::new(Arc::new(store), Arc::new(Silent), Arc::new(Silent))
}
