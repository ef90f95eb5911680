//! The rate limiter of a fleet: all nodes book in the same calendars, each permit by one atomic
//! script.
//!
//! Time is the server's. While Redis is down, each node limits itself to its share of each limit.
//!
//! Permits are booked ahead, for as long as their callers wait, and a flushed server forgets them.
//! That costs up to a burst and what the rate gives in that time. While only some nodes are cut
//! off, these use their shares in addition to the other nodes, which use the whole limit. See
//! `docs/redis.md`.

use std::sync::{
    Arc, LazyLock,
    atomic::{AtomicBool, AtomicI64, Ordering},
};

use async_trait::async_trait;
use longhaul_domain::{
    Clock, Invalid, Timestamp, bounds,
    contract::rate_limiter::{
        Limit, LimitRules, LimiterError, RateLimiter, Reservation, provider_of,
    },
};
use redis::{Script, ScriptInvocation};

use super::Redis;
use crate::local::{
    MemoryRateLimiter, PARK_MEMORY_MS, PROBE_RETRY_MS, PROBE_SILENCE_MS, check_key, names_of,
};

static RESERVE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/reserve.lua")));
static PARK: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/park.lua")));
static RELEASE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("lua/release.lua")));

/// The most permits of a limit that are remembered one by one because another limit has delayed
/// them. The script looks at each and blocks the server: a thousand take about half a millisecond.
const DELAYED_PERMITS: usize = 1_000;
/// What an idle key can save up, in microseconds: 120 years. Numbers in a script are exact up to
/// twice that.
const LONGEST_TOLERANCE: i128 = 1 << 52;

/// What a node does while Redis is down.
#[derive(Debug, Clone)]
pub struct Fallback {
    /// How many nodes share each limit; at least 1.
    pub nodes: u32,
    /// The clock of the fallback.
    pub clock: Arc<dyn Clock>,
}

/// Limits that all nodes with the same server and namespace share.
#[derive(Debug)]
pub struct RedisRateLimiter {
    redis: Arc<Redis>,
    rules: LimitRules,
    fallback: MemoryRateLimiter,
    is_down: AtomicBool,
    offset_micros: Arc<AtomicI64>,
}

/// A reservation with the server's times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Booked {
    pub reservation: Reservation,
    pub asked_at: Timestamp,
    /// When the permit is to be used, if it was granted.
    pub used_at: Option<Timestamp>,
}

impl RedisRateLimiter {
    /// All nodes must have the same rules: each sends them with its requests.
    pub fn new(redis: Arc<Redis>, rules: LimitRules, fallback: Fallback) -> Result<Self, Invalid> {
        rules.check()?;
        if fallback.nodes == 0 {
            return Err(Invalid::new("redis.nodes", "is 0", "at least 1"));
        }

        let share = shares(&rules, fallback.nodes);
        Ok(Self {
            redis,
            rules,
            fallback: MemoryRateLimiter::new(fallback.clock, share)?,
            is_down: AtomicBool::new(false),
            offset_micros: Arc::default(),
        })
    }

    /// Adds these microseconds to the server's time, for tests that move a clock.
    #[must_use]
    pub fn clock_offset(mut self, micros: Arc<AtomicI64>) -> Self {
        self.offset_micros = micros;
        self
    }

    /// Whether the last request fell back to this node's share.
    pub fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    /// Like [`RateLimiter::reserve`], without the fallback.
    pub async fn book(&self, key: &str, max_wait_ms: u64) -> Result<Booked, LimiterError> {
        check_key(key)?;
        let call = self.reserve_call(key, max_wait_ms);
        let (is_granted, ms, now, at): (bool, u64, i64, i64) = self.run(&call).await?;

        let reservation = if is_granted {
            Reservation::Granted { wait_ms: ms }
        } else {
            Reservation::Refused { retry_in_ms: ms }
        };

        Ok(Booked {
            reservation,
            asked_at: Timestamp::from_micros(now),
            used_at: is_granted.then_some(Timestamp::from_micros(at)),
        })
    }

    /// The call of `reserve.lua`, which describes its keys and arguments.
    fn reserve_call(&self, key: &str, max_wait_ms: u64) -> ScriptInvocation<'_> {
        let mut call = RESERVE.prepare_invoke();
        let names: Vec<&str> = names_of(key).collect();
        for name in &names {
            call.key(self.parked_key(name));
        }

        call.arg(self.offset());
        call.arg(max_wait_ms.min(bounds::DURATION_MS));
        call.arg(names.len());
        call.arg(PROBE_SILENCE_MS);
        call.arg(PROBE_RETRY_MS);
        call.arg(DELAYED_PERMITS);

        for (name, limit) in self.rules.limits_of(key) {
            call.key(self.calendar_key(name));
            for argument in arguments_of(limit) {
                call.arg(argument);
            }
        }

        call
    }

    async fn park_for_all(&self, key: &str, for_ms: u64) -> Result<(), LimiterError> {
        let mut call = PARK.prepare_invoke();
        call.key(self.parked_key(key));
        call.arg(self.offset());
        call.arg(for_ms.min(bounds::DURATION_MS));
        call.arg(PARK_MEMORY_MS);

        self.run::<i64>(&call).await.map(drop)
    }

    async fn release_for_all(&self, key: &str) -> Result<(), LimiterError> {
        let mut call = RELEASE.prepare_invoke();
        for name in names_of(key) {
            call.key(self.parked_key(name));
        }
        call.arg(self.offset());

        self.run::<i64>(&call).await.map(drop)
    }

    async fn run<T: redis::FromRedisValue>(
        &self,
        call: &ScriptInvocation<'_>,
    ) -> Result<T, LimiterError> {
        let answer = self
            .redis
            .run(async |mut connection| call.invoke_async(&mut connection).await)
            .await;
        answer.map_err(LimiterError)
    }

    fn offset(&self) -> i64 {
        self.offset_micros.load(Ordering::SeqCst)
    }

    fn calendar_key(&self, name: &str) -> String {
        self.redis.key("limit", &with_hash_tag(name))
    }

    fn parked_key(&self, name: &str) -> String {
        self.redis.key("parked", &with_hash_tag(name))
    }

    /// Records whether Redis answers, and logs when that has changed.
    fn note(&self, failure: Option<&LimiterError>) {
        let was_down = self.is_down.swap(failure.is_some(), Ordering::Relaxed);
        match failure {
            Some(error) if !was_down => {
                tracing::warn!(
                    %error,
                    "rate limiter: Redis is down; this node uses its share of each limit"
                );
            }
            None if was_down => {
                tracing::info!("rate limiter: Redis is back; the nodes share the limits again");
            }
            Some(_) | None => {}
        }
    }
}

#[async_trait]
impl RateLimiter for RedisRateLimiter {
    async fn reserve(&self, key: &str, max_wait_ms: u64) -> Result<Reservation, LimiterError> {
        check_key(key)?;
        let booked = self.book(key, max_wait_ms).await;
        self.note(booked.as_ref().err());

        match booked {
            Ok(booked) => Ok(booked.reservation),
            Err(_) => self.fallback.reserve(key, max_wait_ms).await,
        }
    }

    async fn park(&self, key: &str, for_ms: u64) -> Result<(), LimiterError> {
        check_key(key)?;
        // This node parks the key as well, for when Redis is down.
        let here = self.fallback.park(key, for_ms).await;
        let parked = self.park_for_all(key, for_ms).await;
        self.note(parked.as_ref().err());

        parked.or(here)
    }

    async fn release(&self, key: &str) -> Result<(), LimiterError> {
        check_key(key)?;
        let here = self.fallback.release(key).await;
        let released = self.release_for_all(key).await;
        self.note(released.as_ref().err());

        released.or(here)
    }
}

/// The name with its provider as the hash tag: the braces put all keys of a provider into one slot
/// of a cluster.
fn with_hash_tag(name: &str) -> String {
    format!("{{{}}}:{name}", provider_of(name).unwrap_or(name))
}

/// Each limit divided among the nodes: as many permits in a longer time.
fn shares(rules: &LimitRules, nodes: u32) -> LimitRules {
    let share = |limit: &Limit| {
        let per_ms = limit.per_ms.saturating_mul(u64::from(nodes));
        Limit {
            permits: limit.permits,
            per_ms: per_ms.min(bounds::DURATION_MS),
            burst: (limit.burst / nodes).max(1),
        }
    };

    let limits = rules.limits.iter();
    LimitRules {
        limits: limits
            .map(|(name, limit)| (name.clone(), share(limit)))
            .collect(),
        default: rules.default.as_ref().map(share),
    }
}

/// Permits, interval and tolerance as the script takes them: a time is a number of whole
/// microseconds and a remainder, counted in fractions of one permit.
fn arguments_of(limit: Limit) -> [i64; 5] {
    let permits = i128::from(limit.permits);
    let interval = i128::from(limit.per_ms) * 1_000;
    let tolerance = interval * i128::from(limit.burst - 1) + permits - 1;
    let numbers = [
        permits,
        interval / permits,
        interval % permits,
        (tolerance / permits).min(LONGEST_TOLERANCE),
        tolerance % permits,
    ];

    // All of them are far below the largest `i64`.
    numbers.map(|number| i64::try_from(number).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_the_rate_divided_among_the_nodes() {
        let rules = LimitRules::default().limit("p", Limit::per_minute(60).burst(10));
        let share = |nodes| shares(&rules, nodes).limits["p"];
        assert_eq!(share(1), rules.limits["p"]);

        assert_eq!(
            share(8),
            Limit {
                permits: 60,
                per_ms: 480_000,
                burst: 1
            }
        );
    }

    #[test]
    fn the_arguments_of_the_script_are_exact() {
        assert_eq!(
            arguments_of(Limit::per_second(3).burst(2)),
            [3, 333_333, 1, 333_334, 0]
        );

        let endless = arguments_of(Limit {
            permits: 1,
            per_ms: bounds::DURATION_MS,
            burst: u32::MAX,
        });
        assert!(endless.iter().all(|number| *number < 1 << 53));
    }
}
