//! A Redis server that is flushed, restarted, frozen or away during work.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use longhaul_domain::{
    TaskId,
    contract::{
        progress_cache::{LiveProgress, ProgressCache},
        rate_limiter::{Limit, LimitRules, RateLimiter, Reservation},
    },
};
use longhaul_testkit::own_server::OwnServer;
use longhaul_transport::redis::{Redis, RedisProgressCache, RedisRateLimiter, RedisState};

use super::{DEADLINE, connected, limiter, until_up};
use crate::{fresh::random_id, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "redis::breaking::a_flushed_server_works_like_an_empty_one",
            a_flushed_server_works_like_an_empty_one,
        ),
        trial(
            "redis::breaking::a_node_uses_its_share_until_the_server_is_back",
            a_node_uses_its_share,
        ),
        trial(
            "redis::breaking::a_frozen_server_delays_no_caller",
            a_frozen_server_delays_no_caller,
        ),
        trial(
            "redis::breaking::a_server_that_starts_later_is_found",
            a_server_that_starts_later_is_found,
        ),
        trial(
            "redis::breaking::a_server_without_memory_counts_as_away",
            a_server_without_memory,
        ),
    ]
}

const GRANTED: Reservation = Reservation::Granted { wait_ms: 0 };

/// One an hour, and eight at once: a quarter of that is two at once.
fn hourly() -> LimitRules {
    LimitRules::default().limit(
        "p",
        Limit {
            permits: 1,
            per_ms: 3_600_000,
            burst: 8,
        },
    )
}

async fn within_deadline<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future)
        .await
        .unwrap()
}

/// How many permits are granted at once.
async fn permits(limiter: &RedisRateLimiter) -> usize {
    let mut count = 0;
    while within_deadline(limiter.reserve("p", 0)).await.unwrap() == GRANTED {
        count += 1;
    }
    count
}

/// Sends one command to a server.
fn command(server: &OwnServer, arguments: &[&str]) {
    let mut connection = redis::Client::open(server.url.as_str())
        .unwrap()
        .get_connection()
        .unwrap();
    let mut command = redis::cmd(arguments[0]);
    command.arg(&arguments[1..]);
    let _: redis::Value = command.query(&mut connection).unwrap();
}

struct Setup {
    server: OwnServer,
    redis: Arc<Redis>,
    limiter: RedisRateLimiter,
    cache: RedisProgressCache,
    task: TaskId,
}

impl Setup {
    async fn new(name: &'static str) -> Self {
        let server = OwnServer::start("redis", name);
        let redis = connected(&server.url, "longhaul").await;
        Self::of(server, redis)
    }

    fn of(server: OwnServer, redis: Arc<Redis>) -> Self {
        let limiter = limiter(&redis, hourly());
        let cache = RedisProgressCache::new(Arc::clone(&redis));
        Self {
            server,
            redis,
            limiter,
            cache,
            task: TaskId(random_id()),
        }
    }

    async fn put(&self, sequence: u64) -> bool {
        let report = LiveProgress {
            attempt: 1,
            sequence,
            progress: 1.into(),
        };

        within_deadline(self.cache.put(&[(self.task, report)]))
            .await
            .is_ok()
    }

    /// The number of the newest report; `None` when the cache is unavailable.
    async fn newest(&self) -> Option<Option<u64>> {
        let found = within_deadline(self.cache.get(&[self.task])).await.ok()?;
        Some(found[0].as_ref().map(|report| report.sequence))
    }

    async fn assert_works_like_an_empty_one(&self) {
        assert_eq!(permits(&self.limiter).await, 8);
        assert!(!self.limiter.is_down());
        assert_eq!(self.newest().await, Some(None));
        assert!(self.put(9).await);
        assert_eq!(self.newest().await, Some(Some(9)));
    }
}

async fn a_flushed_server_works_like_an_empty_one() {
    let setup = Setup::new("redis-flushed").await;
    for _ in 0..3 {
        setup.assert_works_like_an_empty_one().await;
        assert_eq!(permits(&setup.limiter).await, 0);
        command(&setup.server, &["FLUSHALL"]);
        command(&setup.server, &["SCRIPT", "FLUSH"]);
    }

    assert_eq!(setup.redis.state(), RedisState::Up);
}

async fn a_node_uses_its_share() {
    let mut setup = Setup::new("redis-killed").await;
    for _ in 0..2 {
        setup.assert_works_like_an_empty_one().await;
        setup.server.kill();
        within_deadline(setup.redis.until(false)).await;
        assert!(
            permits(&setup.limiter).await <= 2,
            "no more than its share, and only once in this hour"
        );
        assert!(setup.limiter.is_down());
        assert_eq!((setup.put(10).await, setup.newest().await), (false, None));

        // This node parks the key of a provider that says "too many".
        within_deadline(setup.limiter.park("q", 3_600_000))
            .await
            .unwrap();
        let parked = within_deadline(setup.limiter.reserve("q", 0))
            .await
            .unwrap();
        assert!(matches!(parked, Reservation::Refused { .. }), "{parked:?}");
        setup.server.start_again();

        within_deadline(setup.redis.until(true)).await;
    }

    setup.assert_works_like_an_empty_one().await;
}

async fn a_frozen_server_delays_no_caller() {
    let server = OwnServer::start("redis", "redis-frozen");
    // The timeout is that of a node.
    let redis = Redis::open(&server.url, "longhaul").unwrap();
    until_up(&redis).await;
    let setup = Setup::of(server, redis);

    setup.server.signal("STOP");
    assert_eq!(
        permits(&setup.limiter).await,
        2,
        "only the first request waits for an answer"
    );
    assert!(setup.limiter.is_down() && setup.redis.state() != RedisState::Up);
    assert!(!setup.put(1).await);

    setup.server.signal("CONT");
    within_deadline(async {
        // On a busy machine an answer may exceed the timeout again.
        while setup.limiter.is_down() || !setup.put(2).await {
            setup.redis.until(true).await;
            setup.limiter.reserve("p", 0).await.unwrap();
        }
    })
    .await;
}

async fn a_server_that_starts_later_is_found() {
    let mut server = OwnServer::start("redis", "redis-late");
    server.kill();
    let redis = Redis::open_with_timeout(&server.url, "longhaul", DEADLINE).unwrap();
    let limiter = limiter(&redis, hourly());
    assert_eq!(permits(&limiter).await, 2);
    server.start_again();
    within_deadline(redis.until(true)).await;
    assert_eq!(permits(&limiter).await, 8);
}

async fn a_server_without_memory() {
    let setup = Setup::new("redis-full").await;
    command(&setup.server, &["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(permits(&setup.limiter).await, 2);
    assert!(setup.limiter.is_down());
    assert!(!setup.put(1).await);
    command(&setup.server, &["CONFIG", "SET", "maxmemory", "0"]);
    setup.assert_works_like_an_empty_one().await;
}
