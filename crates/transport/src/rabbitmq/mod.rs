use std::sync::Arc;

use longhaul_domain::Invalid;

use crate::local::{MemoryBroker, MemoryEventBus};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LaneKind {
    #[default]
    Classic,
    Quorum,
}
#[derive(Debug, Clone, Default)]
pub struct RabbitOptions {
    pub namespace: String,
    pub lanes: LaneKind,
}
#[derive(Debug)]
pub struct RabbitBroker;
impl RabbitBroker {
    pub fn connect(_: &str, _: RabbitOptions) -> Result<Arc<MemoryBroker>, Invalid> {
        Ok(Arc::new(MemoryBroker::new()))
    }
}
#[derive(Debug)]
pub struct RabbitEventBus;
impl RabbitEventBus {
    pub fn new(_: &Arc<MemoryBroker>, bus: MemoryEventBus) -> MemoryEventBus {
        bus
    }
}
