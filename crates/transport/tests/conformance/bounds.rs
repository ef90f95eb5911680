//! Memory stays bounded for any use.

use std::sync::Arc;

use libtest_mimic::Trial;
use longhaul_domain::{
    TaskId,
    bounds::CHUNK_BYTES,
    contract::{
        ProgressCache, RateLimiter, StreamLog,
        progress_cache::LiveProgress,
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
        trial("limiter::idle_keys_are_forgotten", idle_keys_are_forgotten),
        trial(
            "limiter::keys_beyond_the_bound_are_an_error_until_others_are_idle",
            keys_beyond_the_bound_are_an_error,
        ),
        trial(
            "limiter::a_permit_counts_in_all_limits_when_idle_keys_are_removed",
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
            "progress::tasks_without_a_report_for_the_longest_time_are_forgotten",
            silent_tasks_are_forgotten,
        ),
        trial(
            "streams::a_stream_has_no_more_bytes_than_allowed",
            a_stream_has_no_more_bytes_than_allowed,
        ),
        trial(
            "streams::ended_streams_are_evicted_first_the_oldest_before_the_others",
            ended_streams_are_evicted_first,
        ),
        trial(
            "streams::the_least_recently_written_streams_are_evicted_next",
            the_least_recently_written_are_next,
        ),
        trial(
            "streams::an_evicted_stream_still_has_its_numbers",
            an_evicted_stream_still_has_its_numbers,
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

async fn idle_keys_are_forgotten() {
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
        "a known key still works"
    );

    clock.advance_ms(HOUR_MS);
    assert_eq!(
        limiter.reserve("one-more", 0).await,
        Ok(Reservation::Granted { wait_ms: 0 })
    );
    assert_eq!(limiter.remembered_keys(), 1);
}

async fn a_permit_counts_in_all_limits() {
    // For one of these numbers, the limiter removes idle keys between the model and the provider.
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
        "the key that was parked again still needs a probe"
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

/// A stream with this many chunks.
async fn written(log: &MemoryStreamLog, chunks: usize) -> TaskId {
    let task = TaskId(random_id());
    for _ in 0..chunks {
        log.append(task, 1, "x").await.unwrap();
    }
    task
}

async fn stored(log: &MemoryStreamLog, task: TaskId) -> (usize, u64) {
    let read = log.read(task, 0, 1_000).await.unwrap();
    (read.entries.len(), read.first_available)
}

async fn a_stream_has_no_more_bytes_than_allowed() {
    let log = MemoryStreamLog::new(StreamBounds {
        stream_bytes: 100_000,
        ..StreamBounds::default()
    });
    let task = TaskId(random_id());

    for number in 1..=50_u64 {
        log.append(task, 1, &"x".repeat(30_000)).await.unwrap();
        let read = log.read(task, 0, 1_000).await.unwrap();
        assert_eq!(read.entries.len(), usize::try_from(number.min(3)).unwrap());
        assert_eq!(read.first_available, number.saturating_sub(3) + 1);
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

async fn ended_streams_are_evicted_first() {
    let log = MemoryStreamLog::new(SMALL);
    let running = written(&log, 9).await;
    let first = written(&log, 9).await;
    let second = written(&log, 9).await;

    // The stream that was written later ends first.
    log.end(second, 1).await.unwrap();
    log.end(first, 1).await.unwrap();
    let new = written(&log, 2).await;
    assert_eq!(
        stored(&log, second).await,
        (0, 11),
        "evicted; a reader that is behind sees the gap"
    );

    assert_eq!(stored(&log, first).await, (10, 1));
    let another = written(&log, 10).await;
    assert_eq!(stored(&log, first).await, (0, 11));
    assert_eq!(
        (stored(&log, running).await, stored(&log, new).await),
        ((9, 1), (2, 1))
    );
    assert_eq!(stored(&log, another).await, (10, 1));
}

async fn the_least_recently_written_are_next() {
    let log = MemoryStreamLog::new(SMALL);
    let first = written(&log, 9).await;
    let second = written(&log, 9).await;
    let third = written(&log, 9).await;
    log.append(first, 1, "still here").await.unwrap();
    let new = written(&log, 5).await;

    assert_eq!(stored(&log, second).await, (0, 10));
    assert_eq!(
        (stored(&log, first).await, stored(&log, third).await),
        ((10, 1), (9, 1))
    );
    assert_eq!(stored(&log, new).await, (5, 1));
}

async fn an_evicted_stream_still_has_its_numbers() {
    let log = MemoryStreamLog::new(SMALL);
    let lost = written(&log, 10).await;
    for _ in 0..3 {
        written(&log, 10).await;
    }

    assert_eq!(stored(&log, lost).await, (0, 11));
    // A reader that is behind does not wait: reading makes it start over.
    log.wait(lost, 3, 600_000).await.unwrap();
    assert_eq!(log.append(lost, 1, "on").await, Ok(11));
    assert_eq!(stored(&log, lost).await, (1, 11));
    log.begin(lost, 2, 5).await.unwrap();
    assert!(
        log.append(lost, 1, "late").await.is_err(),
        "an older attempt is still refused"
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

    assert_eq!(stored(&log, ended).await, (2, 1));
    written(&log, 1).await;
    assert_eq!(
        stored(&log, ended).await,
        (0, 1),
        "forgotten with its numbers"
    );
    assert_eq!(stored(&log, running).await, (1, 1));
    written(&log, 1).await;
    assert_eq!(stored(&log, running).await, (0, 1));
}

async fn silent_tasks_are_forgotten() {
    let cache = MemoryProgressCache::new(3);
    let tasks: Vec<TaskId> = (0..5).map(|_| TaskId(random_id())).collect();
    let put = async |task: usize, sequence| {
        let report = LiveProgress {
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
