//! What is kept in memory stays bounded, whatever callers do.

use std::sync::Arc;

use libtest_mimic::Trial;
use longhaul_domain::{
    TaskId,
    bounds::CHUNK_BYTES,
    contract::{
        ProgressCache, RateLimiter, StreamLog,
        progress_cache::HotProgress,
        rate_limiter::{Limit, LimitRules, Reservation},
        stream_log::Content,
    },
};
use longhaul_testkit::clock::TestClock;
use longhaul_transport::local::{
    MemoryProgressCache, MemoryRateLimiter, MemoryStreamLog, StreamBounds,
};

use crate::{fresh::random_id, trial};

const HOUR_MS: u64 = 3_600_000;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "limiter::keys_that_are_idle_are_forgotten",
            keys_that_are_idle_are_forgotten,
        ),
        trial(
            "limiter::keys_beyond_the_bound_are_an_error_until_others_are_idle",
            keys_beyond_the_bound_are_an_error,
        ),
        trial(
            "limiter::a_permit_counts_in_all_limits_when_idle_keys_go",
            a_permit_counts_in_all_limits,
        ),
        trial(
            "limiter::parked_keys_are_bounded_and_forgotten",
            parked_keys_are_bounded_and_forgotten,
        ),
        trial("limiter::bookings_are_bounded", bookings_are_bounded),
        trial(
            "limiter::rules_that_permit_nothing_are_refused",
            rules_that_permit_nothing_are_refused,
        ),
        trial(
            "progress::tasks_that_have_not_reported_for_longest_are_forgotten",
            silent_tasks_are_forgotten,
        ),
        trial(
            "streams::a_stream_keeps_no_more_bytes_than_allowed",
            a_stream_keeps_no_more_bytes_than_allowed,
        ),
        trial(
            "streams::streams_that_ended_go_first_and_the_oldest_of_them",
            streams_that_ended_go_first,
        ),
        trial(
            "streams::then_go_those_that_were_not_written_to_for_longest",
            then_go_those_not_written_to,
        ),
        trial(
            "streams::a_stream_that_was_given_up_keeps_its_numbers",
            a_stream_that_was_given_up_keeps_its_numbers,
        ),
        trial(
            "streams::no_more_streams_than_allowed_are_remembered",
            no_more_streams_than_allowed_are_remembered,
        ),
    ]
}

fn limiter(clock: &TestClock, default: Limit) -> MemoryRateLimiter {
    let rules = LimitRules {
        default: Some(default),
        ..LimitRules::default()
    };
    MemoryRateLimiter::new(Arc::new(clock.clone()), rules).unwrap()
}

const HOURLY: Limit = Limit {
    permits: 1,
    per_ms: HOUR_MS,
    burst: 1,
};

async fn keys_that_are_idle_are_forgotten() {
    let clock = TestClock::new();
    let limiter = limiter(&clock, HOURLY);
    for number in 0..100_000_u64 {
        limiter.reserve(&format!("user-{number}"), 0).await.unwrap();
        // A thousand keys are in use at any time.
        clock.advance_ms(HOUR_MS / 1_000);
        assert!(limiter.remembered_keys() <= 2_100);
    }
}

async fn keys_beyond_the_bound_are_an_error() {
    let clock = TestClock::new();
    let limiter = limiter(&clock, HOURLY);
    for number in 0..10_000 {
        limiter.reserve(&format!("user-{number}"), 0).await.unwrap();
    }
    assert!(limiter.reserve("one-more", 0).await.is_err());
    assert!(
        matches!(
            limiter.reserve("user-1", 0).await,
            Ok(Reservation::Refused { .. })
        ),
        "who is known goes on"
    );
    clock.advance_ms(HOUR_MS);
    assert_eq!(
        limiter.reserve("one-more", 0).await,
        Ok(Reservation::Granted { wait_ms: 0 })
    );
    assert_eq!(limiter.remembered_keys(), 1);
}

async fn a_permit_counts_in_all_limits() {
    // Whatever number of keys makes the limiter look for idle ones, one of these meets it between model and provider.
    for others in 0..200 {
        let clock = TestClock::new();
        let often = Limit {
            permits: 1_000,
            per_ms: 1,
            burst: 1_000,
        };
        let limits = [
            ("provider".to_owned(), often),
            ("provider/model".to_owned(), HOURLY),
        ]
        .into();
        let rules = LimitRules {
            limits,
            default: Some(often),
        };
        let limiter = MemoryRateLimiter::new(Arc::new(clock.clone()), rules).unwrap();
        for number in 0..others {
            limiter.reserve(&format!("user-{number}"), 0).await.unwrap();
        }
        clock.advance_ms(HOUR_MS);
        assert_eq!(
            limiter.reserve("provider/model", 0).await,
            Ok(Reservation::Granted { wait_ms: 0 })
        );
        let second = limiter.reserve("provider/model", 0).await;
        assert!(
            matches!(second, Ok(Reservation::Refused { .. })),
            "{second:?} beside {others} keys"
        );
    }
}

async fn parked_keys_are_bounded_and_forgotten() {
    let clock = TestClock::new();
    let limiter = limiter(&clock, HOURLY);
    for number in 0..10_000 {
        limiter.park(&format!("user-{number}"), 1).await.unwrap();
    }
    assert!(limiter.park("one-more", 1).await.is_err());
    limiter.park("user-1", HOUR_MS).await.unwrap();
    clock.advance_ms(HOUR_MS + 1_000);
    limiter.park("one-more", u64::MAX).await.unwrap();
    assert_eq!(
        limiter.remembered_keys(),
        2,
        "the one that was parked again is still to be probed"
    );
}

async fn bookings_are_bounded() {
    let clock = TestClock::new();
    let limiter = limiter(&clock, HOURLY);
    for _ in 0..=10_000 {
        assert!(matches!(
            limiter.reserve("key", u64::MAX).await,
            Ok(Reservation::Granted { .. })
        ));
    }
    assert!(matches!(
        limiter.reserve("key", u64::MAX).await,
        Ok(Reservation::Refused { .. })
    ));
    clock.advance_ms(HOUR_MS);
    assert!(matches!(
        limiter.reserve("key", u64::MAX).await,
        Ok(Reservation::Granted { .. })
    ));
}

async fn rules_that_permit_nothing_are_refused() {
    let bad = [
        Limit {
            permits: 0,
            ..HOURLY
        },
        Limit {
            per_ms: 0,
            ..HOURLY
        },
        Limit { burst: 0, ..HOURLY },
    ];
    for limit in bad.into_iter().chain([Limit {
        per_ms: u64::MAX,
        ..HOURLY
    }]) {
        let of_key = LimitRules {
            limits: [("key".to_owned(), limit)].into(),
            default: None,
        };
        let of_all = LimitRules {
            default: Some(limit),
            ..LimitRules::default()
        };
        for rules in [of_key, of_all] {
            assert!(
                MemoryRateLimiter::new(Arc::new(TestClock::new()), rules).is_err(),
                "{limit:?}"
            );
        }
    }
    let extreme = Limit {
        permits: u32::MAX,
        per_ms: 1,
        burst: u32::MAX,
    };
    let limiter = limiter(&TestClock::new(), extreme);
    assert_eq!(
        limiter.reserve("key", 0).await,
        Ok(Reservation::Granted { wait_ms: 0 })
    );
}

const SMALL: StreamBounds = StreamBounds {
    stream_entries: 10,
    stream_bytes: CHUNK_BYTES,
    total_entries: 30,
    total_bytes: usize::MAX,
    streams: 8,
};

/// A stream with so many chunks.
async fn written(log: &MemoryStreamLog, chunks: usize) -> TaskId {
    let task = TaskId(random_id());
    for _ in 0..chunks {
        log.append(task, 1, "x").await.unwrap();
    }
    task
}

async fn kept(log: &MemoryStreamLog, task: TaskId) -> (usize, u64) {
    let read = log.read(task, 0, 1_000).await.unwrap();
    (read.entries.len(), read.first_kept)
}

async fn a_stream_keeps_no_more_bytes_than_allowed() {
    let log = MemoryStreamLog::new(StreamBounds {
        stream_bytes: 100_000,
        ..StreamBounds::default()
    });
    let task = TaskId(random_id());
    for number in 1..=50_u64 {
        log.append(task, 1, &"x".repeat(30_000)).await.unwrap();
        let read = log.read(task, 0, 1_000).await.unwrap();
        assert_eq!(read.entries.len(), usize::try_from(number.min(3)).unwrap());
        assert_eq!(read.first_kept, number.saturating_sub(3) + 1);
    }
    let bytes_of = |content: &Content| match content {
        Content::Chunk(chunk) => chunk.len(),
        Content::Rewind { .. } | Content::End => 0,
    };
    log.append(task, 1, &"x".repeat(CHUNK_BYTES)).await.unwrap();
    let read = log.read(task, 0, 1_000).await.unwrap();
    assert!(
        read.entries
            .iter()
            .map(|entry| bytes_of(&entry.content))
            .sum::<usize>()
            <= 100_000
    );
}

async fn streams_that_ended_go_first() {
    let log = MemoryStreamLog::new(SMALL);
    let running = written(&log, 9).await;
    let (first, second) = (written(&log, 9).await, written(&log, 9).await);
    // The one that was written later ends first.
    log.end(second, 1).await.unwrap();
    log.end(first, 1).await.unwrap();
    let newcomer = written(&log, 2).await;
    assert_eq!(
        kept(&log, second).await,
        (0, 11),
        "gone, and whoever is behind sees it"
    );
    assert_eq!(kept(&log, first).await, (10, 1));
    let another = written(&log, 10).await;
    assert_eq!(kept(&log, first).await, (0, 11));
    assert_eq!(
        (kept(&log, running).await, kept(&log, newcomer).await),
        ((9, 1), (2, 1))
    );
    assert_eq!(kept(&log, another).await, (10, 1));
}

async fn then_go_those_not_written_to() {
    let log = MemoryStreamLog::new(SMALL);
    let (first, second, third) = (
        written(&log, 9).await,
        written(&log, 9).await,
        written(&log, 9).await,
    );
    log.append(first, 1, "still here").await.unwrap();
    let newcomer = written(&log, 5).await;
    assert_eq!(kept(&log, second).await, (0, 10));
    assert_eq!(
        (kept(&log, first).await, kept(&log, third).await),
        ((10, 1), (9, 1))
    );
    assert_eq!(kept(&log, newcomer).await, (5, 1));
}

async fn a_stream_that_was_given_up_keeps_its_numbers() {
    let log = MemoryStreamLog::new(SMALL);
    let lost = written(&log, 10).await;
    for _ in 0..3 {
        written(&log, 10).await;
    }
    assert_eq!(kept(&log, lost).await, (0, 11));
    // Whoever is behind is not left waiting: reading tells it to start over.
    log.wait(lost, 3, 600_000).await.unwrap();
    assert_eq!(log.append(lost, 1, "on").await, Ok(11));
    assert_eq!(kept(&log, lost).await, (1, 11));
    log.begin(lost, 2, 5).await.unwrap();
    assert!(
        log.append(lost, 1, "late").await.is_err(),
        "the fence stands"
    );
    assert_eq!(log.append(lost, 2, "anew").await, Ok(13));
}

async fn no_more_streams_than_allowed_are_remembered() {
    let log = MemoryStreamLog::new(SMALL);
    let ended = written(&log, 1).await;
    log.end(ended, 1).await.unwrap();
    let running = written(&log, 1).await;
    for _ in 0..6 {
        written(&log, 1).await;
    }
    assert_eq!(kept(&log, ended).await, (2, 1));
    written(&log, 1).await;
    assert_eq!(kept(&log, ended).await, (0, 1), "forgotten altogether");
    assert_eq!(kept(&log, running).await, (1, 1));
    written(&log, 1).await;
    assert_eq!(kept(&log, running).await, (0, 1));
}

async fn silent_tasks_are_forgotten() {
    let cache = MemoryProgressCache::new(3);
    let tasks: Vec<TaskId> = (0..5).map(|_| TaskId(random_id())).collect();
    let put = async |task: usize, sequence| {
        let report = HotProgress {
            attempt: 1,
            sequence,
            progress: 1.into(),
        };
        cache.put(&[(tasks[task], report)]).await.unwrap();
    };
    for (task, sequence) in [(0, 1), (1, 1), (2, 1), (0, 2), (3, 1), (4, 1)] {
        put(task, sequence).await;
    }
    let known = cache
        .get(&tasks)
        .await
        .unwrap()
        .into_iter()
        .map(|found| found.is_some());
    assert_eq!(known.collect::<Vec<_>>(), [true, false, false, true, true]);
}
