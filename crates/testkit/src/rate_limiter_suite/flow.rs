//! Permits over time: in no stretch of it are there more than the burst and what the rate gives.

use longhaul_domain::{
    Clock,
    contract::rate_limiter::{Limit, Reservation},
};

use super::{HOUR_MS, Limiter, MINUTE_MS, RateLimiterFactory, reserve, rules};
use crate::suite::{Case, Dice, cases};

pub(super) fn cases() -> Vec<Case<RateLimiterFactory>> {
    cases![
        an_hour_of_asking_grants_the_burst_and_the_rate_and_no_more,
        an_hour_of_waiting_keeps_the_models_and_the_providers_limit,
        keys_that_ask_alike_get_alike,
    ]
}

/// When a permit was used, in microseconds: not before the one and not after the other.
#[derive(Clone, Copy)]
struct Used {
    earliest: i64,
    latest: i64,
}

/// Asks for a permit and says when it is used, if there is one.
async fn used(limiter: &Limiter, key: &str, max_wait_ms: u64) -> Option<Used> {
    let before = limiter.clock.now().as_micros();
    let reservation = reserve(limiter, key, max_wait_ms).await;
    let after = limiter.clock.now().as_micros();
    match reservation {
        Reservation::Granted { wait_ms } => {
            let wait = wait_ms as i64 * 1_000;
            // The wait is told in whole milliseconds, rounded up.
            let rounded = if wait > 0 { 999 } else { 0 };
            Some(Used {
                earliest: before + wait - rounded,
                latest: after + wait,
            })
        }
        Reservation::Refused { .. } => None,
    }
}

/// Counts in every stretch from one use to another.
fn assert_within(limit: Limit, uses: &mut [Used]) {
    uses.sort_by_key(|used| used.earliest);
    let per = i128::from(limit.per_ms) * 1_000;
    for (first, start) in uses.iter().enumerate() {
        for (last, end) in uses.iter().enumerate().skip(first) {
            let count = (last - first + 1) as i128;
            let flowed = i128::from(limit.permits) * i128::from(end.latest - start.earliest);
            assert!(
                (count - i128::from(limit.burst)) * per <= flowed,
                "{count} of {limit:?} in {flowed} / {per}"
            );
        }
    }
}

async fn an_hour_of_asking_grants_the_burst_and_the_rate_and_no_more(make: RateLimiterFactory) {
    let limit = Limit {
        permits: 50,
        per_ms: MINUTE_MS,
        burst: 10,
    };
    let limiter = make(rules([("key", limit)], None)).await;
    let (mut dice, mut uses, mut passed_ms) = (Dice::new(1), Vec::new(), 0);
    while passed_ms < HOUR_MS {
        while let Some(used) = used(&limiter, "key", 0).await {
            uses.push(used);
        }
        // Never so long that permits are lost because the burst is full.
        let step_ms = dice.below(10_000);
        limiter.clock.advance_ms(step_ms);
        passed_ms += step_ms;
    }
    assert_within(limit, &mut uses);
    let least = 10 + 50 * 59;
    assert!(
        uses.len() >= least,
        "{} permits were used of at least {least}",
        uses.len()
    );
}

async fn an_hour_of_waiting_keeps_the_models_and_the_providers_limit(make: RateLimiterFactory) {
    let provider = Limit {
        permits: 30,
        per_ms: MINUTE_MS,
        burst: 5,
    };
    let model = Limit {
        permits: 7,
        per_ms: MINUTE_MS,
        burst: 3,
    };
    let limiter = make(rules([("p", provider), ("p/slow", model)], None)).await;
    let (mut dice, mut of_model, mut of_all, mut passed_ms) =
        (Dice::new(2), Vec::new(), Vec::new(), 0);
    while passed_ms < HOUR_MS {
        for _ in 0..dice.below(6) {
            let key = ["p/slow", "p/fast", "p"][dice.below(3) as usize];
            let max_wait_ms = [0, 1_000, 20_000, 120_000][dice.below(4) as usize];
            let Some(used) = used(&limiter, key, max_wait_ms).await else {
                continue;
            };
            of_all.push(used);
            if key == "p/slow" {
                of_model.push(used);
            }
        }
        let step_ms = dice.below(4_000);
        limiter.clock.advance_ms(step_ms);
        passed_ms += step_ms;
    }
    assert_within(model, &mut of_model);
    assert_within(provider, &mut of_all);
    assert!(
        of_model.len() > 7 * 50 && of_all.len() > 30 * 55,
        "{} of {}",
        of_model.len(),
        of_all.len()
    );
}

async fn keys_that_ask_alike_get_alike(make: RateLimiterFactory) {
    let limit = Limit {
        permits: 60,
        per_ms: MINUTE_MS,
        burst: 4,
    };
    let limiter = make(rules([("p", limit)], None)).await;
    let (keys, mut counts) = (["p/a", "p/b", "p/c"], [0_u32; 3]);
    for round in 0..600 {
        for turn in 0..3 {
            let asks = (round + turn) % 3;
            if used(&limiter, keys[asks], 10_000).await.is_some() {
                counts[asks] += 1;
            }
        }
        limiter.clock.advance_ms(2_000);
    }
    // Two come back in the time in which three ask, and nobody goes away with less than most of a share.
    assert!(
        counts.iter().all(|count| (350..=450).contains(count)),
        "{counts:?}"
    );
}
