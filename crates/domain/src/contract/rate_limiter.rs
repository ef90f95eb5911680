//! The rate limiter: how fast a provider may be called, for everyone who shares the limiter (R22).
//!
//! A key names a provider, or a provider and one of its models (`openai/gpt-4`). A permit for a model needs room in
//! the model's own limit and in its provider's, whichever are configured; a key without any has the default. Places
//! are booked in the order of the calls: who is told to wait has a place, and nobody who comes later gets it first.

use std::collections::BTreeMap;

use async_trait::async_trait;

use crate::{bounds, error::Invalid};

/// So many permits in a stretch of time, and how many may come at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// How many permits there are in each stretch.
    pub permits: u32,
    /// How long a stretch is, in milliseconds.
    pub per_ms: u64,
    /// Permits that an idle key has saved up; at least 1.
    pub burst: u32,
}

impl Limit {
    /// So many permits in a second, evenly spaced: none are saved up.
    pub const fn per_second(permits: u32) -> Self {
        Self {
            permits,
            per_ms: 1_000,
            burst: 1,
        }
    }

    /// So many permits in a minute, evenly spaced: none are saved up.
    pub const fn per_minute(permits: u32) -> Self {
        Self {
            permits,
            per_ms: 60_000,
            burst: 1,
        }
    }

    /// Lets an idle key save up so many permits, which may then come at once.
    #[must_use]
    pub const fn burst(self, permits: u32) -> Self {
        Self {
            burst: permits,
            ..self
        }
    }

    /// From one permit to the next in an even flow.
    const fn interval_micros(&self) -> u64 {
        self.per_ms
            .saturating_mul(1_000)
            .div_ceil(self.permits as u64)
    }
}

/// Which key has which limit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LimitRules {
    /// Limits of providers (`openai`) and of models (`openai/gpt-4`).
    pub limits: BTreeMap<String, Limit>,
    /// What a key has that neither itself nor its provider has a limit for; without it such a key is unlimited.
    pub default: Option<Limit>,
}

impl LimitRules {
    /// Adds the limit of a provider (`openai`) or of a model (`openai/gpt-4`).
    #[must_use]
    pub fn limit(mut self, key: &str, limit: Limit) -> Self {
        self.limits.insert(key.to_owned(), limit);
        self
    }

    /// Refuses limits that permit nothing or take no time, and names that no key can have.
    pub fn check(&self) -> Result<(), Invalid> {
        self.limits
            .keys()
            .try_for_each(|name| bounds::check_name("rateLimit", name))?;
        self.limits
            .values()
            .chain(&self.default)
            .try_for_each(check_limit)
    }

    /// The limits that a permit of `key` counts in, each with the name that it is shared by.
    pub fn limits_of<'a>(&self, key: &'a str) -> Vec<(&'a str, Limit)> {
        let names = std::iter::once(key).chain(provider_of(key));
        let own: Vec<_> = names
            .filter_map(|name| Some((name, *self.limits.get(name)?)))
            .collect();
        if own.is_empty() {
            self.default.iter().map(|limit| (key, *limit)).collect()
        } else {
            own
        }
    }

    /// How far apart permits of `key` come when they are all used, in microseconds; nothing where it has no limit.
    pub fn slowest_micros(&self, key: &str) -> Option<u64> {
        self.limits_of(key)
            .iter()
            .map(|(_, limit)| limit.interval_micros())
            .max()
    }
}

/// The provider of a model's key; a provider's own key has none.
pub fn provider_of(key: &str) -> Option<&str> {
    key.split_once('/').map(|(provider, _)| provider)
}

fn check_limit(limit: &Limit) -> Result<(), Invalid> {
    if limit.permits == 0 || limit.burst == 0 || limit.per_ms == 0 {
        return Err(Invalid::new(
            "rateLimit",
            format!("is {limit:?}"),
            "at least 1 of permits, burst and per_ms",
        ));
    }
    bounds::check_duration_ms("rateLimit", limit.per_ms)
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
