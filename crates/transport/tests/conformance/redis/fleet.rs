//! Many nodes share one limit, checked by the times that the server has booked. Also compares the
//! script with the limiter of one process.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use libtest_mimic::Trial;
use longhaul_domain::{
    Clock, Timestamp,
    contract::rate_limiter::{Limit, LimitRules, RateLimiter, Reservation},
};
use longhaul_testkit::clock::TestClock;
use longhaul_transport::local::MemoryRateLimiter;
use longhaul_transport::redis::RedisRateLimiter;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use tokio::{sync::Barrier, time::Instant};

use super::{FreshRedis, limiter};
use crate::trial;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "redis::fleet::eight_nodes_use_all_of_one_limit_and_no_more",
            eight_nodes_use_all_of_one_limit,
        ),
        trial(
            "redis::fleet::eight_nodes_stay_within_the_limits_of_a_model_and_its_provider",
            eight_nodes_stay_within_both_limits,
        ),
        trial(
            "redis::fleet::a_long_queue_of_callers_costs_no_memory",
            a_long_queue_of_callers_costs_no_memory,
        ),
        trial(
            "redis::fleet::every_key_expires_once_its_permits_have_no_effect",
            every_key_expires,
        ),
        trial(
            "redis::fleet::the_script_and_the_limiter_of_one_process_decide_alike",
            the_script_decides_alike,
        ),
        trial(
            "redis::fleet::changed_rules_apply_to_the_next_booking",
            changed_rules_apply_to_the_next_booking,
        ),
    ]
}

const NODES: usize = 8;
/// Callers of each node. Together they book further ahead than a run lasts. So a busy machine that
/// pauses until all bookings are used up loses no permit of the run.
const CALLERS: usize = 100;
/// How far ahead a caller books, in milliseconds.
const AHEAD_MS: u64 = 3_000;
/// How long a run lasts after the first request of every caller, in microseconds of the server.
const RUN_MICROS: i64 = 2_000_000;

/// What the callers of a run share.
struct Start {
    all_asked: Barrier,
    /// The server's time at the last of the first requests.
    micros: AtomicI64,
}

/// One caller, which asks like a handler: it asks, waits for its permit and asks again.
async fn call(limiter: Arc<RedisRateLimiter>, key: &'static str, start: Arc<Start>) -> Vec<i64> {
    let mut booked = limiter.book(key, AHEAD_MS).await.unwrap();
    let mut booked_at = Instant::now();
    start
        .micros
        .fetch_max(booked.asked_at.as_micros(), Ordering::SeqCst);
    start.all_asked.wait().await;
    let end = start.micros.load(Ordering::SeqCst) + RUN_MICROS;
    let mut uses = Vec::new();

    while booked.asked_at.as_micros() <= end {
        uses.extend(booked.used_at.map(Timestamp::as_micros));
        let rest_ms = match booked.reservation {
            Reservation::Granted { wait_ms } => wait_ms,
            Reservation::Refused { retry_in_ms } => retry_in_ms,
        };

        tokio::time::sleep_until(booked_at + Duration::from_millis(rest_ms)).await;
        booked = limiter.book(key, AHEAD_MS).await.unwrap();
        booked_at = Instant::now();
    }

    uses
}

/// The uses of all callers, and when all of them had asked.
async fn run(
    fresh: &FreshRedis,
    rules: &LimitRules,
    keys: &[&'static str],
) -> (i64, Vec<(&'static str, Vec<i64>)>) {
    let nodes = join_all((0..NODES).map(|_| fresh.again())).await;
    let nodes: Vec<_> = nodes
        .iter()
        .map(|redis| Arc::new(limiter(redis, rules.clone())))
        .collect();
    let start = Arc::new(Start {
        all_asked: Barrier::new(NODES * CALLERS),
        micros: AtomicI64::new(0),
    });

    let callers = nodes
        .iter()
        .flat_map(|node| (0..CALLERS).map(move |caller| (node, keys[caller % keys.len()])));
    let calls = callers.map(|(node, key)| {
        let call = tokio::spawn(call(Arc::clone(node), key, Arc::clone(&start)));
        async move { (key, call.await.unwrap()) }
    });
    let uses = tokio::time::timeout(Duration::from_secs(120), join_all(calls))
        .await
        .unwrap();

    (start.micros.load(Ordering::SeqCst), uses)
}

/// Asserts that between any two uses there are no more permits than the rate and the burst allow.
fn assert_within(limit: Limit, uses: &[i64]) {
    let per = i128::from(limit.per_ms) * 1_000;
    for (first, start) in uses.iter().enumerate() {
        for (last, end) in uses.iter().enumerate().skip(first) {
            let count = (last - first + 1) as i128;
            // A permit passes in the microsecond in which its time lies.
            let flowed = i128::from(limit.permits) * i128::from(end - start + 1);
            assert!(
                (count - i128::from(limit.burst)) * per <= flowed,
                "{count} of {limit:?} in {} µs",
                end - start
            );
        }
    }
}

/// How much of the limit was used, in percent, from the time when all callers had asked to the last
/// use.
fn percent_used(limit: Limit, start: i64, uses: &[i64]) -> f64 {
    let micros = (uses[uses.len() - 1] - start) as f64;
    let most = micros * f64::from(limit.permits) / (limit.per_ms as f64 * 1_000.0);
    uses.iter().filter(|at| **at >= start).count() as f64 * 100.0 / most
}

fn in_order(uses: impl Iterator<Item = i64>) -> Vec<i64> {
    let mut all: Vec<i64> = uses.collect();
    all.sort_unstable();
    all
}

async fn eight_nodes_use_all_of_one_limit() {
    let limit = Limit::per_second(300).burst(40);
    let fresh = FreshRedis::open().await;
    let (start, uses) = run(&fresh, &LimitRules::default().limit("p", limit), &["p"]).await;
    let uses = in_order(uses.into_iter().flat_map(|(_, uses)| uses));
    assert_within(limit, &uses);

    let percent = percent_used(limit, start, &uses);
    assert!(
        percent >= 95.0,
        "{percent:.1} % of the limit were used: {} permits",
        uses.len()
    );
}

async fn eight_nodes_stay_within_both_limits() {
    let provider = Limit::per_second(200).burst(20);
    let model = Limit::per_second(37).burst(5);
    let fresh = FreshRedis::open().await;
    let rules = LimitRules::default()
        .limit("p", provider)
        .limit("p/slow", model);
    let (start, uses) = run(&fresh, &rules, &["p/slow", "p/fast", "p"]).await;
    let of_model = uses
        .iter()
        .filter(|(key, _)| *key == "p/slow")
        .flat_map(|(_, uses)| uses.iter().copied());

    assert_within(model, &in_order(of_model));
    let all = in_order(uses.iter().flat_map(|(_, uses)| uses.iter().copied()));
    assert_within(provider, &all);
    let percent = percent_used(provider, start, &all);
    assert!(
        percent >= 95.0,
        "{percent:.1} % of the provider's limit were used"
    );
}

async fn a_long_queue_of_callers_costs_no_memory() {
    let fresh = FreshRedis::open().await;
    let rules = LimitRules::default().limit(
        "p",
        Limit {
            permits: 1,
            per_ms: 1_000,
            burst: 1,
        },
    );

    let node = limiter(&fresh.redis, rules);
    let mut last = 0;
    for _ in 0..5_000 {
        let booked = node.book("p", u64::MAX).await.unwrap();
        let used_at = booked.used_at.unwrap().as_micros();
        let free_at = booked.asked_at.as_micros().max(last + 1_000_000);
        assert_eq!(
            used_at, free_at,
            "a second after the one before, or at once"
        );
        last = used_at;
    }

    let mut connection = redis::Client::open(super::server())
        .unwrap()
        .get_connection()
        .unwrap();
    let key = &fresh.keys()[0].0;
    let bytes: usize = redis::cmd("STRLEN")
        .arg(key)
        .query(&mut connection)
        .unwrap();
    assert!(bytes < 100, "{key} has {bytes} bytes");
}

async fn every_key_expires() {
    let fresh = FreshRedis::open().await;
    let rules = LimitRules::default()
        .limit("p", Limit::per_minute(1))
        .limit("p/a", Limit::per_minute(2).burst(3));
    let node = limiter(&fresh.redis, rules);

    for _ in 0..5 {
        node.reserve("p/a", 600_000).await.unwrap();
    }

    node.park("q", 1_000).await.unwrap();
    let keys = fresh.keys();
    assert_eq!(keys.len(), 3, "{keys:?}");

    // Five permits at one a minute, and an hour after the time of the parked key.
    assert!(
        keys.iter().all(|(_, ms)| (1..=3_700_000).contains(ms)),
        "{keys:?}"
    );

    let of_provider = keys
        .iter()
        .find(|(key, _)| key.ends_with(":limit:{p}:p"))
        .unwrap()
        .1;
    assert!(
        of_provider > 200_000,
        "a key lives as long as its bookings: {of_provider} ms"
    );
}

/// A clock that the test sets.
#[derive(Debug, Default)]
struct SettableClock(AtomicI64);

impl Clock for SettableClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst))
    }
}

async fn the_script_decides_alike() {
    for seed in 0..12_u64 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut below = move |end: u64| rng.next_u64() % end;
        let mut limit = || Limit {
            permits: 1 + below(13) as u32,
            per_ms: 10 + below(3_000),
            burst: 1 + below(6) as u32,
        };
        let rules = LimitRules {
            default: Some(limit()),
            ..LimitRules::default()
        };

        let rules = rules
            .limit("p", limit())
            .limit("p/a", limit())
            .limit("p/b", limit())
            .limit("q", limit());
        let fresh = FreshRedis::open().await;
        let clock = TestClock::new();
        let server_time = Arc::new(SettableClock::default());
        let of_fleet = limiter(&fresh.redis, rules.clone()).clock_offset(clock.offset());

        let of_process =
            MemoryRateLimiter::new(Arc::<SettableClock>::clone(&server_time), rules.clone())
                .unwrap();
        for step in 0..400 {
            let key = ["p", "p/a", "p/b", "p/c", "q", "q/a", "other"][below(7) as usize];
            let max_wait_ms = [0, 500, 5_000, 60_000, u64::MAX][below(5) as usize];
            let booked = of_fleet.book(key, max_wait_ms).await.unwrap();
            server_time
                .0
                .store(booked.asked_at.as_micros(), Ordering::SeqCst);

            let expected = of_process.reserve(key, max_wait_ms).await.unwrap();
            assert_eq!(
                booked.reservation, expected,
                "seed {seed}, step {step}, {key} of {rules:?}"
            );
            clock.advance_ms(below(2) * below(3_000));
        }
    }
}

async fn changed_rules_apply_to_the_next_booking() {
    let fresh = FreshRedis::open().await;
    let node = |limit| limiter(&fresh.redis, LimitRules::default().limit("p", limit));
    let before = node(Limit::per_minute(7));
    let after = node(Limit::per_minute(60));

    let used_at = async |node: &RedisRateLimiter| {
        node.book("p", u64::MAX)
            .await
            .unwrap()
            .used_at
            .unwrap()
            .as_micros()
    };

    let mut times = vec![used_at(&before).await, used_at(&before).await];
    for _ in 0..5 {
        times.push(used_at(&after).await);
    }

    // The first booking after the change has the old distance, and all others the new one.
    let distances: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(
        (8_000_000..=8_571_429).contains(&distances[0]),
        "{distances:?}"
    );
    assert!(
        (8_571_428..=8_571_430).contains(&distances[1]),
        "{distances:?}"
    );

    assert!(
        distances[2..].iter().all(|micros| *micros == 1_000_000),
        "{distances:?}"
    );
}
