//! Parked keys: closed for a time, then reopened by one probe.

use futures::future::join_all;
use longhaul_domain::contract::rate_limiter::Reservation;

use super::{
    HOUR_MS, Limiter, MINUTE_MS, RateLimiterFactory, assert_about, assert_granted_at_once, granted,
    hourly, refused, rules,
};
use crate::suite::{Case, cases};

pub(super) fn cases() -> Vec<Case<RateLimiterFactory>> {
    cases![
        a_parked_key_refuses_all_requests_until_its_time_is_over,
        a_key_without_a_limit_can_be_parked,
        after_the_time_one_probe_is_granted_and_the_rest_after_its_release,
        one_of_many_concurrent_requests_is_the_probe,
        a_silent_probe_times_out,
        a_probe_that_is_rejected_parks_the_key_again,
        a_request_refused_by_the_limit_is_not_the_probe,
        parking_again_never_shortens_the_time,
        a_release_before_the_time_is_over_changes_nothing,
        a_release_of_a_key_that_is_not_parked_changes_nothing,
        a_parked_model_does_not_affect_its_provider_and_other_models,
        a_parked_provider_stops_all_its_models,
        a_release_by_a_model_opens_its_provider,
        a_key_whose_model_and_provider_are_parked_waits_for_both,
        a_parked_key_does_not_lose_permits,
    ]
}

/// A limiter that refuses nothing but parked keys.
async fn wide_open(make: &RateLimiterFactory) -> Limiter {
    make(rules(
        [("p", hourly(1_000)), ("p/a", hourly(1_000))],
        Some(hourly(1_000)),
    ))
    .await
}

/// Asserts that a probe is running and other requests should retry soon.
async fn assert_waits_for_probe(limiter: &Limiter, key: &str) {
    let retry_in_ms = refused(limiter, key, HOUR_MS).await;
    assert!(
        (1..=5_000).contains(&retry_in_ms),
        "{key} should be retried soon, not in {retry_in_ms} ms"
    );
}

async fn a_parked_key_refuses_all_requests_until_its_time_is_over(make: RateLimiterFactory) {
    let limiter = wide_open(&make).await;
    limiter.park("p", 2 * HOUR_MS).await.unwrap();
    for max_wait_ms in [0, MINUTE_MS, 10 * HOUR_MS] {
        assert_about(refused(&limiter, "p", max_wait_ms).await, 2 * HOUR_MS);
    }

    limiter.clock.advance_ms(HOUR_MS);
    let retry_in_ms = refused(&limiter, "p", 0).await;
    assert_about(retry_in_ms, HOUR_MS);
    limiter.clock.advance_ms(retry_in_ms);
    assert_granted_at_once(&limiter, "p").await;
}

async fn a_key_without_a_limit_can_be_parked(make: RateLimiterFactory) {
    let limiter = make(rules([], None)).await;
    limiter.park("free", HOUR_MS).await.unwrap();
    assert_about(refused(&limiter, "free", 0).await, HOUR_MS);
    limiter.clock.advance_ms(HOUR_MS);
    assert_granted_at_once(&limiter, "free").await;
    assert_waits_for_probe(&limiter, "free").await;
}

async fn after_the_time_one_probe_is_granted_and_the_rest_after_its_release(
    make: RateLimiterFactory,
) {
    let limiter = wide_open(&make).await;
    limiter.park("p", HOUR_MS).await.unwrap();
    limiter.clock.advance_ms(HOUR_MS);
    assert_granted_at_once(&limiter, "p").await;
    for _ in 0..10 {
        assert_waits_for_probe(&limiter, "p").await;
    }

    limiter.release("p").await.unwrap();
    for _ in 0..10 {
        assert_granted_at_once(&limiter, "p").await;
    }
}

async fn one_of_many_concurrent_requests_is_the_probe(make: RateLimiterFactory) {
    let limiter = wide_open(&make).await;
    limiter.park("p", HOUR_MS).await.unwrap();
    limiter.clock.advance_ms(HOUR_MS);

    let ask = |number: usize| {
        let limiter = limiter.share();
        tokio::spawn(async move {
            limiter
                .reserve(["p", "p/a", "p/b"][number % 3], HOUR_MS)
                .await
                .unwrap()
        })
    };

    let answers = join_all((0..60).map(ask))
        .await
        .into_iter()
        .map(|answer| answer.unwrap());
    assert_eq!(
        answers
            .filter(|answer| matches!(answer, Reservation::Granted { .. }))
            .count(),
        1
    );
}

async fn a_silent_probe_times_out(make: RateLimiterFactory) {
    let limiter = wide_open(&make).await;
    limiter.park("p", HOUR_MS).await.unwrap();
    limiter.clock.advance_ms(HOUR_MS);
    assert_granted_at_once(&limiter, "p").await;
    assert_waits_for_probe(&limiter, "p").await;
    limiter.clock.advance_ms(30_000);

    for _ in 0..10 {
        assert_granted_at_once(&limiter, "p").await;
    }
}

async fn a_probe_that_is_rejected_parks_the_key_again(make: RateLimiterFactory) {
    let limiter = wide_open(&make).await;
    for _ in 0..3 {
        limiter.park("p", HOUR_MS).await.unwrap();
        assert_about(refused(&limiter, "p", 0).await, HOUR_MS);
        limiter.clock.advance_ms(HOUR_MS);
        assert_granted_at_once(&limiter, "p").await;
        assert_waits_for_probe(&limiter, "p").await;
    }
}

async fn a_request_refused_by_the_limit_is_not_the_probe(make: RateLimiterFactory) {
    let limiter = make(rules([("p", hourly(2))], None)).await;
    for _ in 0..2 {
        assert_granted_at_once(&limiter, "p").await;
    }

    limiter.park("p", MINUTE_MS).await.unwrap();
    limiter.clock.advance_ms(MINUTE_MS);
    assert!(
        refused(&limiter, "p", 0).await > 50 * MINUTE_MS,
        "by the limit"
    );
    limiter.clock.advance_ms(2 * HOUR_MS / 3);

    // The probe waits for its permit, and its timeout starts then.
    assert!(granted(&limiter, "p", HOUR_MS).await > 15 * MINUTE_MS);
    limiter.clock.advance_ms(10 * MINUTE_MS);
    assert_waits_for_probe(&limiter, "p").await;
}

async fn parking_again_never_shortens_the_time(make: RateLimiterFactory) {
    let limiter = wide_open(&make).await;
    limiter.park("p", 2 * HOUR_MS).await.unwrap();
    limiter.park("p", MINUTE_MS).await.unwrap();
    assert_about(refused(&limiter, "p", 0).await, 2 * HOUR_MS);
    limiter.park("p", 3 * HOUR_MS).await.unwrap();
    assert_about(refused(&limiter, "p", 0).await, 3 * HOUR_MS);
}

async fn a_release_before_the_time_is_over_changes_nothing(make: RateLimiterFactory) {
    let limiter = wide_open(&make).await;
    limiter.park("p", HOUR_MS).await.unwrap();
    limiter.release("p").await.unwrap();
    limiter.release("p/a").await.unwrap();
    assert_about(refused(&limiter, "p", 0).await, HOUR_MS);
}

async fn a_release_of_a_key_that_is_not_parked_changes_nothing(make: RateLimiterFactory) {
    let limiter = make(rules([("p", hourly(1))], None)).await;
    limiter.release("p").await.unwrap();
    assert_granted_at_once(&limiter, "p").await;
    limiter.release("p").await.unwrap();
    assert_about(refused(&limiter, "p", 0).await, HOUR_MS);
}

async fn a_parked_model_does_not_affect_its_provider_and_other_models(make: RateLimiterFactory) {
    let limiter = wide_open(&make).await;
    limiter.park("p/a", HOUR_MS).await.unwrap();
    assert_about(refused(&limiter, "p/a", 0).await, HOUR_MS);
    for key in ["p", "p/b", "p/a/x", "q/a"] {
        assert_granted_at_once(&limiter, key).await;
    }
}

async fn a_parked_provider_stops_all_its_models(make: RateLimiterFactory) {
    let limiter = wide_open(&make).await;
    limiter.park("p", HOUR_MS).await.unwrap();
    for key in ["p", "p/a", "p/b", "p/a/x"] {
        assert_about(refused(&limiter, key, 0).await, HOUR_MS);
    }
    assert_granted_at_once(&limiter, "pp").await;
    assert_granted_at_once(&limiter, "q/p").await;
}

async fn a_release_by_a_model_opens_its_provider(make: RateLimiterFactory) {
    let limiter = wide_open(&make).await;
    limiter.park("p", HOUR_MS).await.unwrap();
    limiter.clock.advance_ms(HOUR_MS);
    assert_granted_at_once(&limiter, "p/a").await;
    for key in ["p", "p/a", "p/b"] {
        assert_waits_for_probe(&limiter, key).await;
    }

    limiter.release("p/a").await.unwrap();
    for key in ["p", "p/a", "p/b"] {
        assert_granted_at_once(&limiter, key).await;
    }
}

async fn a_key_whose_model_and_provider_are_parked_waits_for_both(make: RateLimiterFactory) {
    let limiter = wide_open(&make).await;
    limiter.park("p", HOUR_MS).await.unwrap();
    limiter.park("p/a", 2 * HOUR_MS).await.unwrap();
    assert_about(refused(&limiter, "p/a", 0).await, 2 * HOUR_MS);
    limiter.clock.advance_ms(HOUR_MS);
    assert_about(refused(&limiter, "p/a", 0).await, HOUR_MS);
    assert_granted_at_once(&limiter, "p/b").await;
    limiter.release("p/b").await.unwrap();
    assert_about(refused(&limiter, "p/a", 0).await, HOUR_MS);

    limiter.clock.advance_ms(HOUR_MS);
    assert_granted_at_once(&limiter, "p/a").await;
    assert_granted_at_once(&limiter, "p").await;
    assert_waits_for_probe(&limiter, "p/a").await;
}

async fn a_parked_key_does_not_lose_permits(make: RateLimiterFactory) {
    let limiter = make(rules([("p", hourly(3))], None)).await;
    assert_granted_at_once(&limiter, "p").await;
    limiter.park("p", MINUTE_MS).await.unwrap();
    for _ in 0..10 {
        refused(&limiter, "p", 0).await;
    }

    limiter.clock.advance_ms(MINUTE_MS);
    assert_granted_at_once(&limiter, "p").await;
    limiter.release("p").await.unwrap();
    assert_granted_at_once(&limiter, "p").await;
    assert!(refused(&limiter, "p", 0).await > 50 * MINUTE_MS);
}
