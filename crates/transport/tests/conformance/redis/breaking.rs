//! Redis flushed, restarted, frozen and away, in the middle of work.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use longhaul_domain::{
    TaskId,
    contract::{
        progress_cache::{HotProgress, ProgressCache},
        rate_limiter::{Limit, LimitRules, RateLimiter, Reservation},
    },
};
use longhaul_testkit::own_server::OwnServer;
use longhaul_transport::redis::{Redis, RedisProgressCache, RedisRateLimiter, RedisState};

use super::{PATIENCE, connected, limiter, until_up};
use crate::{fresh::random_id, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "redis::breaking::a_flushed_server_goes_on_as_an_empty_one",
            a_flushed_server_goes_on_as_an_empty_one,
        ),
        trial(
            "redis::breaking::a_node_keeps_its_share_until_the_server_is_back",
            a_node_keeps_its_share,
        ),
        trial(
            "redis::breaking::a_frozen_server_holds_nobody_up",
            a_frozen_server_holds_nobody_up,
        ),
        trial(
            "redis::breaking::a_server_that_comes_late_is_found",
            a_server_that_comes_late_is_found,
        ),
        trial(
            "redis::breaking::a_server_without_memory_is_as_good_as_none",
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

async fn within_patience<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future)
        .await
        .unwrap()
}

/// How many permits are had at once.
async fn permits(limiter: &RedisRateLimiter) -> usize {
    let mut count = 0;
    while within_patience(limiter.reserve("p", 0)).await.unwrap() == GRANTED {
        count += 1;
    }
    count
}

/// One command to a server, without an answer.
fn command(server: &OwnServer, words: &[&str]) {
    let mut connection = redis::Client::open(server.url.as_str())
        .unwrap()
        .get_connection()
        .unwrap();
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    let _: redis::Value = command.query(&mut connection).unwrap();
}

struct Scene {
    server: OwnServer,
    redis: Arc<Redis>,
    limiter: RedisRateLimiter,
    cache: RedisProgressCache,
    task: TaskId,
}

impl Scene {
    async fn set(name: &'static str) -> Self {
        let server = OwnServer::start("redis", name);
        let redis = connected(&server.url, "longhaul").await;
        Self::of(server, redis)
    }

    fn of(server: OwnServer, redis: Arc<Redis>) -> Self {
        let (limiter, cache) = (
            limiter(&redis, hourly()),
            RedisProgressCache::new(Arc::clone(&redis)),
        );
        Self {
            server,
            redis,
            limiter,
            cache,
            task: TaskId(random_id()),
        }
    }

    async fn put(&self, sequence: u64) -> bool {
        let report = HotProgress {
            attempt: 1,
            sequence,
            progress: 1.into(),
        };
        within_patience(self.cache.put(&[(self.task, report)]))
            .await
            .is_ok()
    }

    /// The number of the newest report, if the cache can be asked.
    async fn newest(&self) -> Option<Option<u64>> {
        let found = within_patience(self.cache.get(&[self.task])).await.ok()?;
        Some(found[0].as_ref().map(|report| report.sequence))
    }

    async fn assert_works_as_an_empty_one(&self) {
        assert_eq!(permits(&self.limiter).await, 8);
        assert!(!self.limiter.is_away());
        assert_eq!(self.newest().await, Some(None));
        assert!(self.put(9).await);
        assert_eq!(self.newest().await, Some(Some(9)));
    }
}

async fn a_flushed_server_goes_on_as_an_empty_one() {
    let scene = Scene::set("redis-flushed").await;
    for _ in 0..3 {
        scene.assert_works_as_an_empty_one().await;
        assert_eq!(permits(&scene.limiter).await, 0);
        command(&scene.server, &["FLUSHALL"]);
        command(&scene.server, &["SCRIPT", "FLUSH"]);
    }
    assert_eq!(scene.redis.state(), RedisState::Up);
}

async fn a_node_keeps_its_share() {
    let mut scene = Scene::set("redis-killed").await;
    for _ in 0..2 {
        scene.assert_works_as_an_empty_one().await;
        scene.server.kill();
        within_patience(scene.redis.until(false)).await;
        assert!(
            permits(&scene.limiter).await <= 2,
            "no more than its share, and that only once in this hour"
        );
        assert!(scene.limiter.is_away());
        assert_eq!((scene.put(10).await, scene.newest().await), (false, None));
        // A provider that says "too many" is heard by this node, at least.
        within_patience(scene.limiter.park("q", 3_600_000))
            .await
            .unwrap();
        let parked = within_patience(scene.limiter.reserve("q", 0))
            .await
            .unwrap();
        assert!(matches!(parked, Reservation::Refused { .. }), "{parked:?}");
        scene.server.start_again();
        within_patience(scene.redis.until(true)).await;
    }
    scene.assert_works_as_an_empty_one().await;
}

async fn a_frozen_server_holds_nobody_up() {
    let server = OwnServer::start("redis", "redis-frozen");
    // Here the patience is that of a node.
    let redis = Redis::open(&server.url, "longhaul").unwrap();
    until_up(&redis).await;
    let scene = Scene::of(server, redis);
    scene.server.signal("STOP");
    assert_eq!(
        permits(&scene.limiter).await,
        2,
        "the first waits for an answer, and then nobody does"
    );
    assert!(scene.limiter.is_away() && scene.redis.state() != RedisState::Up);
    assert!(!scene.put(1).await);
    scene.server.signal("CONT");
    within_patience(async {
        // On a busy machine an answer may come too late again.
        while scene.limiter.is_away() || !scene.put(2).await {
            scene.redis.until(true).await;
            scene.limiter.reserve("p", 0).await.unwrap();
        }
    })
    .await;
}

async fn a_server_that_comes_late_is_found() {
    let mut server = OwnServer::start("redis", "redis-late");
    server.kill();
    let redis = Redis::open_patiently(&server.url, "longhaul", PATIENCE).unwrap();
    let limiter = limiter(&redis, hourly());
    assert_eq!(permits(&limiter).await, 2);
    server.start_again();
    within_patience(redis.until(true)).await;
    assert_eq!(permits(&limiter).await, 8);
}

async fn a_server_without_memory() {
    let scene = Scene::set("redis-full").await;
    command(&scene.server, &["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(permits(&scene.limiter).await, 2);
    assert!(scene.limiter.is_away());
    assert!(!scene.put(1).await);
    command(&scene.server, &["CONFIG", "SET", "maxmemory", "0"]);
    scene.assert_works_as_an_empty_one().await;
}
