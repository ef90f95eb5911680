//! The rate limiter: how fast a provider may be called by all processes that share the limiter.
//!
//! A key names a provider, or a provider and one of its models (`openai/gpt-4`). A permit for a
//! model needs room in the model's own limit and in its provider's, whichever are configured; a key
//! without any has the default. Permits are granted in the order of the calls: a caller that has to
//! wait has its permit reserved, and no later caller gets it.

use std::collections::BTreeMap;

use async_trait::async_trait;

use crate::{bounds, error::Invalid};

/// Permits per period, and how many may be used at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Permits in each period.
    pub permits: u32,
    /// The period in milliseconds.
    pub per_ms: u64,
    /// Permits that an idle key saves up; at least 1.
    pub burst: u32,
}

impl Limit {
    /// Evenly spaced permits per second: none are saved up.
    pub const fn per_second(permits: u32) -> Self {
        Self {
            permits,
            per_ms: 1_000,
            burst: 1,
        }
    }

    /// Evenly spaced permits per minute: none are saved up.
    pub const fn per_minute(permits: u32) -> Self {
        Self {
            permits,
            per_ms: 60_000,
            burst: 1,
        }
    }

    /// Lets an idle key save up this many permits, which may then be used at once.
    #[must_use]
    pub const fn burst(self, permits: u32) -> Self {
        Self {
            burst: permits,
            ..self
        }
    }

    /// The time between two evenly spaced permits.
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
    /// The limit of a key when neither it nor its provider has one; without it such a key is
    /// unlimited.
    pub default: Option<Limit>,
}

impl LimitRules {
    /// Adds the limit of a provider (`openai`) or of a model (`openai/gpt-4`).
    #[must_use]
    pub fn limit(mut self, key: &str, limit: Limit) -> Self {
        self.limits.insert(key.to_owned(), limit);
        self
    }

    /// Refuses limits without permits or period, and invalid names.
    pub fn check(&self) -> Result<(), Invalid> {
        self.limits
            .keys()
            .try_for_each(|name| bounds::check_name("rateLimit", name))?;
        self.limits
            .values()
            .chain(&self.default)
            .try_for_each(check_limit)
    }

    /// The limits that a permit of `key` counts in, each with the key that shares it.
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

    /// The time between permits of `key` when all are used, in microseconds; `None` without a
    /// limit.
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
    /// The caller has the permit and uses it after this many milliseconds.
    Granted { wait_ms: u64 },
    /// The wait would be longer than the caller accepts. Nothing was reserved. Ask again after this
    /// many milliseconds.
    Refused { retry_in_ms: u64 },
}

/// The limiter cannot be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the rate limiter is unavailable: {0}")]
pub struct LimiterError(pub String);

/// Permits per key.
#[async_trait]
pub trait RateLimiter: Send + Sync + std::fmt::Debug {
    /// Reserves the next permit of `key` if it comes within `max_wait_ms`.
    async fn reserve(&self, key: &str, max_wait_ms: u64) -> Result<Reservation, LimiterError>;
    /// The provider answered "too many requests": no permit of `key` is granted for this long. Then
    /// one probe gets a permit, and the others follow once it was released or has timed out.
    async fn park(&self, key: &str, for_ms: u64) -> Result<(), LimiterError>;
    /// A call succeeded: a parked key whose time is over is open again.
    async fn release(&self, key: &str) -> Result<(), LimiterError>;
}
