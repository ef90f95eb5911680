//! An engine that tells nobody, for tests.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_domain::{
    contract::{
        Doorbell, EventBus, Store,
        doorbell::RungFor,
        event_bus::{EventStream, Heard, Subscription},
    },
    event::TaskEvent,
};
use longhaul_engine::Engine;

#[derive(Debug)]
struct Nobody;

#[async_trait]
impl Doorbell for Nobody {
    fn ring(&self, _queue: &str) {}

    async fn heard(&self) -> Vec<RungFor> {
        std::future::pending().await
    }
}

#[async_trait]
impl EventStream for Nobody {
    async fn next(&mut self) -> Option<Heard> {
        None
    }
}

impl EventBus for Nobody {
    fn publish(&self, _event: TaskEvent) {}

    fn subscribe(&self, _subscription: Subscription) -> Box<dyn EventStream> {
        Box::new(Self)
    }
}

pub(crate) fn engine(store: impl Store + 'static) -> Arc<Engine> {
    Engine::new(Arc::new(store), Arc::new(Nobody), Arc::new(Nobody))
}
