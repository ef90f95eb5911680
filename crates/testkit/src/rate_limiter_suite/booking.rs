//! Reservations: when a caller gets its permit, and in which limits it counts.

use futures::future::join_all;
use longhaul_domain::contract::rate_limiter::{Limit, Reservation};

use super::{
    HOUR_MS, MINUTE_MS, RateLimiterFactory, assert_about, assert_granted_at_once, granted, hourly,
    refused, rules,
};
use crate::suite::{Case, cases};

pub(super) fn cases() -> Vec<Case<RateLimiterFactory>> {
    cases![
        a_key_without_a_limit_never_waits,
        the_next_request_after_a_burst_waits,
        reservations_are_served_one_after_the_other,
        a_refusal_books_nothing,
        a_refused_request_is_granted_after_the_returned_time,
        permits_come_back_with_time_up_to_the_burst,
        concurrent_callers_get_exactly_the_burst,
        concurrent_callers_get_different_reservations,
        a_key_without_a_limit_has_its_own_default_limit,
        a_model_without_a_limit_uses_its_providers_limit,
        a_permit_counts_for_model_and_provider,
        a_permit_refused_by_one_limit_is_booked_in_neither,
        a_slow_model_does_not_block_other_models_of_its_provider,
        an_invalid_key_is_an_error,
    ]
}

async fn a_key_without_a_limit_never_waits(make: RateLimiterFactory) {
    let limiter = make(rules([("other", hourly(1))], None)).await;
    for _ in 0..1_000 {
        assert_granted_at_once(&limiter, "free").await;
        assert_granted_at_once(&limiter, "free/model").await;
    }
}

async fn the_next_request_after_a_burst_waits(make: RateLimiterFactory) {
    let limiter = make(rules([("key", hourly(5))], None)).await;
    for _ in 0..5 {
        assert_granted_at_once(&limiter, "key").await;
    }
    assert_about(refused(&limiter, "key", 0).await, HOUR_MS);
    assert_about(granted(&limiter, "key", HOUR_MS).await, HOUR_MS);
}

async fn reservations_are_served_one_after_the_other(make: RateLimiterFactory) {
    let limiter = make(rules([("key", hourly(1))], None)).await;
    assert_granted_at_once(&limiter, "key").await;
    for place in 1..=10 {
        assert_about(granted(&limiter, "key", u64::MAX).await, place * HOUR_MS);
    }

    // Later callers wait behind all earlier ones.
    limiter.clock.advance_ms(5 * HOUR_MS);
    assert_about(granted(&limiter, "key", u64::MAX).await, 6 * HOUR_MS);
}

async fn a_refusal_books_nothing(make: RateLimiterFactory) {
    let limiter = make(rules([("key", hourly(1))], None)).await;
    assert_granted_at_once(&limiter, "key").await;
    for _ in 0..10 {
        refused(&limiter, "key", MINUTE_MS).await;
    }
    assert_about(granted(&limiter, "key", HOUR_MS).await, HOUR_MS);
}

async fn a_refused_request_is_granted_after_the_returned_time(make: RateLimiterFactory) {
    let limiter = make(rules([("key", hourly(1))], None)).await;
    assert_granted_at_once(&limiter, "key").await;
    for max_wait_ms in [0, 1, 10 * MINUTE_MS] {
        let retry_in_ms = refused(&limiter, "key", max_wait_ms).await;
        assert!(retry_in_ms > 0);
        limiter.clock.advance_ms(retry_in_ms);
        assert!(granted(&limiter, "key", max_wait_ms).await <= max_wait_ms);
    }
}

async fn permits_come_back_with_time_up_to_the_burst(make: RateLimiterFactory) {
    let limiter = make(rules([("key", hourly(4))], None)).await;
    for (hours, permits) in [(0, 4), (1, 1), (3, 3), (4, 4), (1_000, 4)] {
        limiter.clock.advance_ms(hours * HOUR_MS);
        for _ in 0..permits {
            assert_granted_at_once(&limiter, "key").await;
        }
        refused(&limiter, "key", 0).await;
    }
}

async fn concurrent_callers_get_exactly_the_burst(make: RateLimiterFactory) {
    let limiter = make(rules([("key", hourly(7))], None)).await;
    let ask = |_| {
        let limiter = limiter.share();
        tokio::spawn(async move { limiter.reserve("key", 0).await.unwrap() })
    };
    let answers = join_all((0..100).map(ask)).await;
    let at_once = answers
        .into_iter()
        .filter(|answer| *answer.as_ref().unwrap() == Reservation::Granted { wait_ms: 0 });

    assert_eq!(at_once.count(), 7);
}

async fn concurrent_callers_get_different_reservations(make: RateLimiterFactory) {
    let limiter = make(rules([("p", hourly(1)), ("p/m", hourly(3))], None)).await;
    let ask = |number: usize| {
        let limiter = limiter.share();
        tokio::spawn(async move {
            limiter
                .reserve(["p", "p/m"][number % 2], u64::MAX)
                .await
                .unwrap()
        })
    };

    let mut waits_ms = Vec::new();
    for answer in join_all((0..50).map(ask)).await {
        match answer.unwrap() {
            Reservation::Granted { wait_ms } => waits_ms.push(wait_ms),
            Reservation::Refused { .. } => panic!("everyone waits as long as it takes"),
        }
    }

    waits_ms.sort_unstable();
    assert_eq!(waits_ms[0], 0);
    for (place, wait_ms) in (1..).zip(&waits_ms[1..]) {
        assert_about(*wait_ms, place * HOUR_MS);
    }
}

async fn a_key_without_a_limit_has_its_own_default_limit(make: RateLimiterFactory) {
    let limiter = make(rules([("known", hourly(3))], Some(hourly(2)))).await;
    for (key, permits) in [
        ("known", 3),
        ("x", 2),
        ("y", 2),
        ("x/model", 2),
        ("x/other", 2),
    ] {
        for _ in 0..permits {
            assert_granted_at_once(&limiter, key).await;
        }
        assert_about(refused(&limiter, key, 0).await, HOUR_MS);
    }
}

async fn a_model_without_a_limit_uses_its_providers_limit(make: RateLimiterFactory) {
    let limiter = make(rules([("p", hourly(3))], Some(hourly(100)))).await;
    for key in ["p/a", "p/b", "p"] {
        assert_granted_at_once(&limiter, key).await;
    }

    for key in ["p/a", "p/b", "p", "p/c/d"] {
        refused(&limiter, key, 0).await;
    }

    assert_granted_at_once(&limiter, "pp/a").await;
}

async fn a_permit_counts_for_model_and_provider(make: RateLimiterFactory) {
    let limiter = make(rules(
        [("p", hourly(3)), ("p/a", hourly(2)), ("p/b", hourly(2))],
        None,
    ))
    .await;
    assert_granted_at_once(&limiter, "p/a").await;
    assert_granted_at_once(&limiter, "p/a").await;
    refused(&limiter, "p/a", 0).await;
    assert_granted_at_once(&limiter, "p/b").await;
    assert_about(refused(&limiter, "p/b", 0).await, HOUR_MS);
    refused(&limiter, "p", 0).await;
}

async fn a_permit_refused_by_one_limit_is_booked_in_neither(make: RateLimiterFactory) {
    let limiter = make(rules(
        [("p", hourly(3)), ("p/a", hourly(1)), ("p/b", hourly(5))],
        None,
    ))
    .await;
    assert_granted_at_once(&limiter, "p/a").await;
    for _ in 0..10 {
        refused(&limiter, "p/a", MINUTE_MS).await;
    }
    // The model refused, so its provider has lost no permit.
    assert_granted_at_once(&limiter, "p").await;
    assert_granted_at_once(&limiter, "p/b").await;
    for _ in 0..10 {
        refused(&limiter, "p/b", MINUTE_MS).await;
    }
    // The provider refused, so the model has lost no permit. It can use all that the provider
    // regains.
    limiter.clock.advance_ms(3 * HOUR_MS);
    for _ in 0..3 {
        assert_granted_at_once(&limiter, "p/b").await;
    }
    refused(&limiter, "p/b", 0).await;
}

async fn a_slow_model_does_not_block_other_models_of_its_provider(make: RateLimiterFactory) {
    let every = |per_ms| Limit {
        permits: 1,
        per_ms,
        burst: 1,
    };
    let limiter = make(rules(
        [
            ("p", every(10 * MINUTE_MS)),
            ("p/slow", every(24 * HOUR_MS)),
        ],
        None,
    ))
    .await;
    assert_granted_at_once(&limiter, "p/slow").await;
    assert_about(granted(&limiter, "p/slow", u64::MAX).await, 24 * HOUR_MS);
    // Until then other models can use the provider's permits, except for the one that is booked.
    for place in 1..=143 {
        assert_about(
            granted(&limiter, "p/fast", u64::MAX).await,
            place * 10 * MINUTE_MS,
        );
    }
    assert_about(
        granted(&limiter, "p/fast", u64::MAX).await,
        24 * HOUR_MS + 10 * MINUTE_MS,
    );
}

async fn an_invalid_key_is_an_error(make: RateLimiterFactory) {
    let limiter = make(rules([], Some(hourly(1)))).await;
    for key in ["", "a\nb", "\u{0}", &"x".repeat(10_000)] {
        assert!(limiter.reserve(key, 0).await.is_err(), "{key:?}");
        assert!(limiter.park(key, 1).await.is_err(), "{key:?}");
        assert!(limiter.release(key).await.is_err(), "{key:?}");
    }
}
