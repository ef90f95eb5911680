//! The rate limiter: how fast a provider may be called, for everyone who shares the limiter (R22).
//!
//! A key names a provider, or a provider and one of its models (`openai/gpt-4`). A permit for a model needs room in
//! the model's own limit and in its provider's, whichever are configured; a key without any has the default. Places
//! are booked in the order of the calls: who is told to wait has a place, and nobody who comes later gets it first.

use async_trait::async_trait;

/// So many permits in a stretch of time, and how many may come at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    pub permits: u32,
    pub per_ms: u64,
    /// Permits that an idle key has saved up; at least 1.
    pub burst: u32,
}

/// The answer to a request for a permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reservation {
    /// The permit is the caller's, to be used after this many milliseconds.
    Granted { wait_ms: u64 },
    /// The wait would be longer than the caller wants; nothing was booked. Worth asking again after this long.
    Refused { retry_in_ms: u64 },
}

/// Why no answer can be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the rate limiter is unavailable: {0}")]
pub struct LimiterError(pub String);

/// Permits per key.
#[async_trait]
pub trait RateLimiter: Send + Sync + std::fmt::Debug {
    /// Books the next permit of `key` if it comes within `max_wait_ms`.
    async fn reserve(&self, key: &str, max_wait_ms: u64) -> Result<Reservation, LimiterError>;
    /// The provider said "too many": nobody gets a permit of `key` for so long. Then one probe goes first, and the
    /// others follow when it was released, or when it has kept silent for long.
    async fn park(&self, key: &str, for_ms: u64) -> Result<(), LimiterError>;
    /// A call went well: a parked key whose time is over is open again.
    async fn release(&self, key: &str) -> Result<(), LimiterError>;
}
