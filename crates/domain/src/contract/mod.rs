//! What Longhaul asks of the outside world: one trait for each boundary, one conformance suite for
//! each trait.

pub mod artifact_store;
pub mod broker;
pub mod event_bus;
pub mod notifier;
pub mod progress_cache;
pub mod rate_limiter;
pub mod store;
pub mod stream_log;

pub use artifact_store::ArtifactStore;
pub use broker::Broker;
pub use event_bus::EventBus;
pub use notifier::Notifier;
pub use progress_cache::ProgressCache;
pub use rate_limiter::RateLimiter;
pub use store::Store;
pub use stream_log::StreamLog;
