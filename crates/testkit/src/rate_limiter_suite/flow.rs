//! Permits over time: no interval has more than the burst plus the rate.

use longhaul_domain::{
    Clock,
    contract::rate_limiter::{Limit, Reservation},
};

use super::{HOUR_MS, Limiter, MINUTE_MS, RateLimiterFactory, reserve, rules};
use crate::suite::{Case, Dice, cases};

pub(super) fn cases() -> Vec<Case<RateLimiterFactory>> {
    cases![
        an_hour_of_requests_grants_exactly_burst_and_rate,
        an_hour_of_waiting_respects_model_and_provider_limit,
        keys_with_equal_demand_get_equal_shares,
    ]
}

/// When a permit was used: a range in microseconds.
#[derive(Clone, Copy)]
struct Used {
    earliest: i64,
    latest: i64,
}

/// Asks for a permit. Returns when it can be used.
async fn used(limiter: &Limiter, key: &str, max_wait_ms: u64) -> Option<Used> {
    let before = limiter.clock.now().as_micros();
    let reservation = reserve(limiter, key, max_wait_ms).await;
    let after = limiter.clock.now().as_micros();

    match reservation {
        Reservation::Granted { wait_ms } => {
            let wait = wait_ms as i64 * 1_000;
            // The wait is in whole milliseconds, rounded up.
            let rounded = if wait > 0 { 999 } else { 0 };
            Some(Used {
                earliest: before + wait - rounded,
                latest: after + wait,
            })
        }
        Reservation::Refused { .. } => None,
    }
}

/// Checks every interval from one use to another.
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

async fn an_hour_of_requests_grants_exactly_burst_and_rate(make: RateLimiterFactory) {
    let limit = Limit {
        permits: 50,
        per_ms: MINUTE_MS,
        burst: 10,
    };
    let limiter = make(rules([("key", limit)], None)).await;
    let mut dice = Dice::new(1);
    let mut uses = Vec::new();
    let mut passed_ms = 0;

    while passed_ms < HOUR_MS {
        while let Some(used) = used(&limiter, "key", 0).await {
            uses.push(used);
        }
        // Short enough that no permits are lost to a full burst.
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

async fn an_hour_of_waiting_respects_model_and_provider_limit(make: RateLimiterFactory) {
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
    let mut dice = Dice::new(2);
    let mut of_model = Vec::new();
    let mut of_all = Vec::new();
    let mut passed_ms = 0;

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

async fn keys_with_equal_demand_get_equal_shares(make: RateLimiterFactory) {
    let limit = Limit {
        permits: 60,
        per_ms: MINUTE_MS,
        burst: 4,
    };
    let limiter = make(rules([("p", limit)], None)).await;
    let keys = ["p/a", "p/b", "p/c"];
    let mut counts = [0_u32; 3];

    for round in 0..600 {
        for turn in 0..3 {
            let asks = (round + turn) % 3;
            if used(&limiter, keys[asks], 10_000).await.is_some() {
                counts[asks] += 1;
            }
        }
        limiter.clock.advance_ms(2_000);
    }

    // Two permits return while three keys ask. Each key gets most of its fair share.
    assert!(
        counts.iter().all(|count| (350..=450).contains(count)),
        "{counts:?}"
    );
}
