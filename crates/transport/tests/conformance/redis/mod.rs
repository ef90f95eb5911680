//! All tests with a Redis server: the suites, the limits of a fleet, and servers that fail.

pub(crate) mod breaking;
mod fleet;

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use longhaul_domain::contract::rate_limiter::LimitRules;
use longhaul_testkit::{clock::TestClock, progress_cache_suite, rate_limiter_suite, suite::Fresh};
use longhaul_transport::redis::{Fallback, Redis, RedisProgressCache, RedisRateLimiter};

use crate::{fresh::random_id, trial};

pub(crate) fn trials() -> Vec<Trial> {
    let rate_limiter: rate_limiter_suite::RateLimiterFactory = Arc::new(|rules| {
        Box::pin(async move {
            let clock = TestClock::new();
            let redis = FreshRedis::open().await;
            let limiter = limiter(&redis.redis, rules).clock_offset(clock.offset());
            Fresh::new(Arc::new(limiter) as _, clock, Some(Box::new(redis)))
        })
    });

    let progress_cache: progress_cache_suite::ProgressCacheFactory = Arc::new(|()| {
        Box::pin(async {
            let redis = FreshRedis::open().await;
            let cache = RedisProgressCache::new(Arc::clone(&redis.redis));
            Fresh::new(
                Arc::new(cache) as _,
                TestClock::new(),
                Some(Box::new(redis)),
            )
        })
    });

    let mut trials = rate_limiter_suite::trials("redis", &rate_limiter);
    trials.extend(progress_cache_suite::trials("redis", &progress_cache));
    trials.extend(fleet::trials());
    trials.push(trial(
        "redis::an_invalid_url_or_namespace_is_refused_without_showing_the_password",
        invalid_settings_are_refused,
    ));

    trials
}

/// A limiter that falls back on a quarter of its limits.
fn limiter(redis: &Arc<Redis>, rules: LimitRules) -> RedisRateLimiter {
    let fallback = Fallback {
        nodes: 4,
        clock: Arc::new(TestClock::new()),
    };
    RedisRateLimiter::new(Arc::clone(redis), rules, fallback).unwrap()
}

/// A namespace of one case on the shared server. Its keys are removed with it.
#[derive(Debug)]
struct FreshRedis {
    redis: Arc<Redis>,
    namespace: String,
}

impl FreshRedis {
    async fn open() -> Self {
        let namespace = format!("longhaul_test_{}", random_id().simple());
        Self {
            redis: connected(&server(), &namespace).await,
            namespace,
        }
    }

    /// Another connection to the same namespace.
    async fn again(&self) -> Arc<Redis> {
        connected(&server(), &self.namespace).await
    }

    /// The keys, and the milliseconds until each expires.
    fn keys(&self) -> Vec<(String, i64)> {
        let mut connection = redis::Client::open(server())
            .unwrap()
            .get_connection()
            .unwrap();
        let mut find = redis::cmd("SCAN");

        find.cursor_arg(0)
            .arg("MATCH")
            .arg(format!("{}:*", self.namespace))
            .arg("COUNT")
            .arg(1_000);
        let keys: Vec<String> = find
            .iter(&mut connection)
            .unwrap()
            .map(|key| key.unwrap())
            .collect();

        let with_ttl = |key: String| {
            let ms = redis::cmd("PTTL").arg(&key).query(&mut connection).unwrap();
            (key, ms)
        };

        keys.into_iter().map(with_ttl).collect()
    }
}

impl Drop for FreshRedis {
    fn drop(&mut self) {
        let mut connection = redis::Client::open(server())
            .unwrap()
            .get_connection()
            .unwrap();

        for (key, _) in self.keys() {
            let _: () = redis::cmd("UNLINK")
                .arg(key)
                .query(&mut connection)
                .unwrap();
        }
    }
}

/// A busy machine may take seconds to answer. Only the cases about timeouts use shorter ones.
const DEADLINE: Duration = Duration::from_secs(30);

async fn connected(url: &str, namespace: &str) -> Arc<Redis> {
    let redis = Redis::open_with_timeout(url, namespace, DEADLINE).unwrap();
    until_up(&redis).await;
    redis
}

async fn until_up(redis: &Redis) {
    let up = tokio::time::timeout(Duration::from_secs(60), redis.until(true)).await;
    assert!(up.is_ok(), "{:?}", redis.state());
}

fn server() -> String {
    #[expect(
        clippy::disallowed_methods,
        reason = "these tests read the environment only here"
    )]
    let url = std::env::var("LONGHAUL_TEST_REDIS");
    url.unwrap_or_else(|_| {
        panic!(
            "LONGHAUL_TEST_REDIS is not set: run `make test`, or `make services` and `. \
             target/services.env`"
        )
    })
}

async fn invalid_settings_are_refused() {
    for url in [
        "",
        "secret",
        "http://:secret@localhost/",
        "redis://:secret@local host:x/",
        "redis://u:secret@h/db",
    ] {
        let refusal = Redis::open(url, "longhaul").unwrap_err().to_string();
        assert!(
            refusal.contains("redis.url") && !refusal.contains("secret"),
            "{refusal}"
        );
    }

    for namespace in ["", "a b", "{a}", "a\n", &"x".repeat(65)] {
        let refusal = Redis::open("redis://:secret@127.0.0.1:1/", namespace)
            .unwrap_err()
            .to_string();
        assert!(
            refusal.contains("redis.namespace") && refusal.len() < 300,
            "{refusal}"
        );
    }

    let away = Redis::open("redis://:secret@127.0.0.1:1/", "longhaul").unwrap();
    assert!(!format!("{away:?}").contains("secret"));
}
