//! The conformance suite of the rate limiter contract.
//!
//! Time passes when a case moves the clock, and a little by itself. Cases with exact expectations
//! use limits so slow that this makes no difference. Other cases read the clock before and after.

mod booking;
mod flow;
mod parking;

use std::ops::RangeInclusive;

use libtest_mimic::Trial;
use longhaul_domain::contract::rate_limiter::{Limit, LimitRules, RateLimiter, Reservation};

use crate::suite::{self, Factory, Fresh};

/// Makes a limiter with these rules and all permits available.
pub type RateLimiterFactory = Factory<LimitRules, dyn RateLimiter>;

/// One trial for each case, named `{backend}::rate_limiter::{sentence}`.
pub fn trials(backend: &str, factory: &RateLimiterFactory) -> Vec<Trial> {
    let cases = booking::cases()
        .into_iter()
        .chain(flow::cases())
        .chain(parking::cases())
        .collect();
    suite::trials(backend, "rate_limiter", factory, cases)
}

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
/// The most time that passes by itself during a case.
const LITTLE_MS: u64 = MINUTE_MS;

/// One permit per hour, with this burst.
const fn hourly(burst: u32) -> Limit {
    Limit {
        permits: 1,
        per_ms: HOUR_MS,
        burst,
    }
}

fn rules<const N: usize>(limits: [(&str, Limit); N], default: Option<Limit>) -> LimitRules {
    LimitRules {
        limits: limits.map(|(key, limit)| (key.to_owned(), limit)).into(),
        default,
    }
}

type Limiter = Fresh<dyn RateLimiter>;

async fn reserve(limiter: &Limiter, key: &str, max_wait_ms: u64) -> Reservation {
    limiter.reserve(key, max_wait_ms).await.unwrap()
}

async fn assert_granted_at_once(limiter: &Limiter, key: &str) {
    assert_eq!(
        reserve(limiter, key, 0).await,
        Reservation::Granted { wait_ms: 0 },
        "{key}"
    );
}

async fn refused(limiter: &Limiter, key: &str, max_wait_ms: u64) -> u64 {
    match reserve(limiter, key, max_wait_ms).await {
        Reservation::Refused { retry_in_ms } => retry_in_ms,
        granted @ Reservation::Granted { .. } => panic!("{key} is refused, not {granted:?}"),
    }
}

async fn granted(limiter: &Limiter, key: &str, max_wait_ms: u64) -> u64 {
    match reserve(limiter, key, max_wait_ms).await {
        Reservation::Granted { wait_ms } => wait_ms,
        refused @ Reservation::Refused { .. } => panic!("{key} is granted, not {refused:?}"),
    }
}

/// Asserts a duration of which a little may have passed already.
fn about(ms: u64) -> RangeInclusive<u64> {
    ms - LITTLE_MS..=ms
}

fn assert_about(ms: u64, expected_ms: u64) {
    assert!(
        about(expected_ms).contains(&ms),
        "{ms} ms is not about {expected_ms} ms"
    );
}
