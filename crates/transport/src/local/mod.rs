//! For one process: what others keep in Redis, in a broker and in S3 is here in memory and in a folder.
//!
//! What is in memory goes with the process. Nothing of it is the truth: tasks are in the store.

mod artifact_store;
mod broker;
mod broker_consumer;
mod calendar;
mod doorbell;
mod event_bus;
mod folder;
mod paced_limiter;
mod progress_cache;
mod rate_limiter;
mod signing_key;
mod stream_log;

pub use artifact_store::FolderArtifactStore;
pub use broker::MemoryBroker;
pub use doorbell::LocalDoorbell;
pub use event_bus::MemoryEventBus;
pub use longhaul_domain::contract::rate_limiter::LimitRules;
pub use paced_limiter::PacedRateLimiter;
pub use progress_cache::MemoryProgressCache;
pub use rate_limiter::MemoryRateLimiter;
#[cfg(feature = "fleet")]
pub(crate) use rate_limiter::{
    PARK_MEMORY_MS, PROBE_RETRY_MS, PROBE_SILENCE_MS, check_key, names_of,
};
pub use signing_key::signing_key;
pub use stream_log::{MemoryStreamLog, StreamBounds};
