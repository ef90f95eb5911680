//! The rate limiter of a fleet: all nodes book in the same calendars, each permit by one atomic script.
//!
//! Time is the server's. While Redis is away a node keeps its share of each limit by itself. Permits are booked ahead, for
//! as long as their callers wait, and a flushed server forgets them: that costs up to a burst and what the rate gives in
//! that time. While only some nodes are cut off, these use their shares beside the others, who use all of it, for as long
//! as it lasts. See `docs/redis.md`.

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

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

/// Permits per limit that another limit has pushed back, and that are remembered one by one. The script looks at each,
/// and while it does nobody else is answered: a thousand take it about half a millisecond.
const PUSHED_BACK: usize = 1_000;
/// What an idle key can save up, in microseconds: 120 years. Numbers in a script are exact up to twice that.
const LONGEST_TOLERANCE: i128 = 1 << 52;

/// What a node does while Redis is away.
#[derive(Debug, Clone)]
pub struct Fallback {
    /// Among how many nodes each limit is divided then; at least 1.
    pub nodes: u32,
    /// The clock that this node then goes by.
    pub clock: Arc<dyn Clock>,
}

/// Limits that all nodes with the same server and namespace share.
#[derive(Debug)]
pub struct RedisRateLimiter {
    redis: Arc<Redis>,
    rules: LimitRules,
    fallback: MemoryRateLimiter,
    is_away: AtomicBool,
    offset_micros: Arc<AtomicI64>,
}

/// A reservation with the times that the server has decided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Booked {
    pub reservation: Reservation,
    pub asked_at: Timestamp,
    /// When the permit is to be used, if there is one.
    pub used_at: Option<Timestamp>,
}

impl RedisRateLimiter {
    /// All nodes must have the same rules: each tells them to the server with its questions.
    pub fn new(redis: Arc<Redis>, rules: LimitRules, fallback: Fallback) -> Result<Self, Invalid> {
        rules.check()?;
        if fallback.nodes == 0 {
            return Err(Invalid::new("redis.nodes", "is 0", "at least 1"));
        }
        let fallback =
            MemoryRateLimiter::new(Arc::clone(&fallback.clock), shares(&rules, fallback.nodes))?;
        Ok(Self {
            redis,
            rules,
            fallback,
            is_away: AtomicBool::new(false),
            offset_micros: Arc::default(),
        })
    }

    /// Adds so many microseconds to the server's time, for tests that move a clock.
    #[must_use]
    pub fn clock_offset(mut self, micros: Arc<AtomicI64>) -> Self {
        self.offset_micros = micros;
        self
    }

    /// Whether the last question had to be answered by this node alone.
    pub fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Relaxed)
    }

    /// As [`RateLimiter::reserve`], by the server alone.
    pub async fn book(&self, key: &str, max_wait_ms: u64) -> Result<Booked, LimiterError> {
        check_key(key)?;
        let limits = self.rules.limits_of(key);
        let mut call = RESERVE.prepare_invoke();
        let names: Vec<&str> = names_of(key).collect();
        for name in &names {
            call.key(self.parked_key(name));
        }
        call.arg(self.offset())
            .arg(max_wait_ms.min(bounds::DURATION_MS))
            .arg(names.len());
        call.arg(PROBE_SILENCE_MS)
            .arg(PROBE_RETRY_MS)
            .arg(PUSHED_BACK);
        for (name, limit) in limits {
            call.key(self.calendar_key(name));
            for argument in arguments_of(limit) {
                call.arg(argument);
            }
        }
        let (is_granted, ms, now, at): (bool, u64, i64, i64) = self.ask(&call).await?;
        let reservation = match is_granted {
            true => Reservation::Granted { wait_ms: ms },
            false => Reservation::Refused { retry_in_ms: ms },
        };
        let used_at = is_granted.then_some(Timestamp::from_micros(at));
        Ok(Booked {
            reservation,
            asked_at: Timestamp::from_micros(now),
            used_at,
        })
    }

    async fn park_for_all(&self, key: &str, for_ms: u64) -> Result<(), LimiterError> {
        let mut call = PARK.prepare_invoke();
        call.key(self.parked_key(key))
            .arg(self.offset())
            .arg(for_ms.min(bounds::DURATION_MS))
            .arg(PARK_MEMORY_MS);
        self.ask::<i64>(&call).await.map(drop)
    }

    async fn release_for_all(&self, key: &str) -> Result<(), LimiterError> {
        let mut call = RELEASE.prepare_invoke();
        for name in names_of(key) {
            call.key(self.parked_key(name));
        }
        call.arg(self.offset());
        self.ask::<i64>(&call).await.map(drop)
    }

    async fn ask<T: redis::FromRedisValue>(
        &self,
        call: &ScriptInvocation<'_>,
    ) -> Result<T, LimiterError> {
        let answer = self
            .redis
            .ask(async |mut connection| call.invoke_async(&mut connection).await)
            .await;
        answer.map_err(LimiterError)
    }

    fn offset(&self) -> i64 {
        self.offset_micros.load(Ordering::SeqCst)
    }

    /// The braces keep the keys of a provider together on a cluster.
    fn calendar_key(&self, name: &str) -> String {
        self.redis.key(
            "limit",
            &format!("{{{}}}:{name}", provider_of(name).unwrap_or(name)),
        )
    }

    fn parked_key(&self, name: &str) -> String {
        self.redis.key(
            "parked",
            &format!("{{{}}}:{name}", provider_of(name).unwrap_or(name)),
        )
    }

    /// Notes whether Redis answers, and tells when that has changed.
    fn note(&self, away: Option<&LimiterError>) {
        let was_away = self.is_away.swap(away.is_some(), Ordering::Relaxed);
        match away {
            Some(error) if !was_away => {
                tracing::warn!(%error, "this node keeps its share of the rate limits by itself until Redis is back");
            }
            None if was_away => tracing::info!("Redis keeps the rate limits again"),
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
        // This node remembers it as well, for the time when Redis does not.
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

/// Each limit divided among the nodes: as many permits in a longer time.
fn shares(rules: &LimitRules, nodes: u32) -> LimitRules {
    let share = |limit: &Limit| Limit {
        permits: limit.permits,
        per_ms: limit
            .per_ms
            .saturating_mul(u64::from(nodes))
            .min(bounds::DURATION_MS),
        burst: (limit.burst / nodes).max(1),
    };
    let limits = rules
        .limits
        .iter()
        .map(|(name, limit)| (name.clone(), share(limit)))
        .collect();
    LimitRules {
        limits,
        default: rules.default.as_ref().map(share),
    }
}

/// Permits, interval and tolerance as the script wants them: whole microseconds, and parts of a permit-th of one.
fn arguments_of(limit: Limit) -> [i64; 5] {
    let (permits, interval) = (i128::from(limit.permits), i128::from(limit.per_ms) * 1_000);
    let tolerance = interval * i128::from(limit.burst - 1) + permits - 1;
    let tolerance_w = (tolerance / permits).min(LONGEST_TOLERANCE);
    let all = [
        permits,
        interval / permits,
        interval % permits,
        tolerance_w,
        tolerance % permits,
    ];
    // All of them are far below the end of the numbers.
    all.map(|number| i64::try_from(number).unwrap_or(i64::MAX))
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
    fn what_the_script_counts_with_is_exact() {
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
