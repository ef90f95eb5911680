//! Implementations for one process: in memory and in a folder, where a fleet uses Redis, a broker
//! and S3.
//!
//! What is in memory is lost with the process. None of it is the truth: tasks are in the store.

mod artifact_store;
mod calendar;
mod event_bus;
mod folder;
mod notifier;
mod paced_limiter;
mod progress_cache;
mod rate_limiter;
mod signing_key;
mod stream_log;

pub use artifact_store::FolderArtifactStore;
pub use event_bus::MemoryEventBus;
pub use longhaul_domain::contract::rate_limiter::LimitRules;
pub use notifier::LocalNotifier;
pub use paced_limiter::PacedRateLimiter;
pub use progress_cache::MemoryProgressCache;
pub use rate_limiter::MemoryRateLimiter;
#[cfg(feature = "fleet")]
pub(crate) use rate_limiter::{
    PARK_MEMORY_MS, PROBE_RETRY_MS, PROBE_SILENCE_MS, check_key, names_of,
};
pub use signing_key::signing_key;
pub use stream_log::{MemoryStreamLog, StreamBounds};
