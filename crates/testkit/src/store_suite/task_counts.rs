//! Counts and statistics: they equal the rows at any time, compacted or not, and cover past hours.

use std::{collections::BTreeMap, sync::Arc};

use longhaul_domain::{
    NewTask, RunAt, Status, TaskRecord, Timestamp,
    contract::store::{Access, AttemptReport, RetryScope, Verdict},
    filter::Retention,
    lifecycle::reschedule::Reschedule,
    statistics::{CountFilter, Measure, SPAN_MICROS, TaskCount, bucket_of},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::{
    case::{Case, cases},
    invariants::check_task_counts,
    support::{HOUR_MS, MANY, completed, fatal, ids_of, lease_of, new_task, retryable, snoozed},
};
use crate::{fixture::Fixture, names::queue_name};

pub(super) fn cases() -> Vec<Case> {
    cases![
        counts_equal_the_rows_before_and_after_compaction,
        concurrent_compactions_count_each_row_once,
        a_task_that_moves_to_another_queue_is_counted_there,
        a_pruned_task_is_no_longer_counted,
        ends_are_counted_by_the_attempt_that_ended_them,
        wait_and_run_times_are_counted_by_duration,
        tasks_that_end_together_are_counted_separately,
        a_task_that_never_ran_has_no_wait_and_run_time,
        statistics_are_read_by_the_hour,
        a_task_that_ends_twice_is_counted_twice,
    ]
}

async fn history(fixture: &Fixture) -> Vec<TaskCount> {
    let spans = Some((Timestamp::from_micros(0), Timestamp::from_micros(i64::MAX)));
    fixture
        .store
        .read_task_counts(&CountFilter { spans })
        .await
        .unwrap()
}

/// The counts of one measure as (label, bucket, n), of any hour, because the case may cross one.
async fn measured(fixture: &Fixture, measure: Measure) -> Vec<(String, i32, i64)> {
    let mut sums: BTreeMap<(String, i32), i64> = BTreeMap::new();
    for task_count in history(fixture)
        .await
        .into_iter()
        .filter(|task_count| task_count.key.measure == measure)
    {
        *sums
            .entry((task_count.key.label, task_count.key.bucket))
            .or_default() += task_count.n;
    }
    sums.into_iter()
        .map(|((label, bucket), n)| (label, bucket, n))
        .collect()
}

async fn counts_equal_the_rows_before_and_after_compaction(fixture: Arc<Fixture>) {
    let mut random = StdRng::seed_from_u64(7);
    let node = fixture.node().await;
    for round in 0..12_u32 {
        let queue = format!("queue-{}", round % 3);
        let batch: Vec<NewTask> = (0..8)
            .map(|_| NewTask {
                queue: queue_name(&queue),
                ..new_task()
            })
            .collect();

        let ids = fixture.submit_all(batch).await;
        for task in fixture.claim_from(node, &[&queue], &["work"], 5).await {
            let outcomes = [completed(), fatal(), retryable(0), snoozed(0), completed()];
            let outcome = outcomes[random.random_range(0..outcomes.len())].clone();
            fixture.finish(lease_of(&task), outcome).await;
        }

        fixture
            .store
            .cancel_task(&Access::All, ids[random.random_range(0..8)])
            .await
            .unwrap();
        let tasks = fixture.all_tasks().await;

        check_task_counts(&fixture, &tasks).await;
        assert!(fixture.store.compact_counts(7).await.unwrap() <= 7);
        check_task_counts(&fixture, &tasks).await;
    }

    let tasks = fixture.all_tasks().await;
    let before = history(&fixture).await;
    while fixture.store.compact_counts(MANY).await.unwrap() > 0 {}
    check_task_counts(&fixture, &tasks).await;
    assert_eq!(history(&fixture).await, before, "folding changes no sum");
    fixture
        .store
        .cancel_task(&Access::All, ids_of(&tasks)[0])
        .await
        .unwrap();

    check_task_counts(&fixture, &fixture.all_tasks().await).await;
}

async fn concurrent_compactions_count_each_row_once(fixture: Arc<Fixture>) {
    for _ in 0..25 {
        fixture.submit(new_task()).await;
    }

    let folding = (0..4).map(|_| async {
        let mut folded = 0;
        for _ in 0..25 {
            folded += fixture.store.compact_counts(3).await.unwrap();
        }
        folded
    });

    let submitting = (0..4).map(|_| async {
        for _ in 0..25 {
            fixture.submit(new_task()).await;
        }
    });
    let (folded, _) = tokio::join!(
        futures::future::join_all(folding),
        futures::future::join_all(submitting)
    );

    assert!(
        folded.into_iter().sum::<usize>() > 0,
        "rows were compacted during the submits"
    );
    check_task_counts(&fixture, &fixture.all_tasks().await).await;
    while fixture.store.compact_counts(MANY).await.unwrap() > 0 {}
    check_task_counts(&fixture, &fixture.all_tasks().await).await;
}

async fn a_task_that_moves_to_another_queue_is_counted_there(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    while fixture.store.compact_counts(MANY).await.unwrap() > 0 {}
    let change = Reschedule {
        queue: Some(queue_name("elsewhere")),
        ..Reschedule::default()
    };

    fixture
        .store
        .reschedule_task(&Access::All, id, &change)
        .await
        .unwrap();
    let present = fixture
        .store
        .read_task_counts(&CountFilter::default())
        .await
        .unwrap();

    assert_eq!(
        present.len(),
        1,
        "a count of zero is not listed: {present:?}"
    );
    let key = &present[0].key;
    let n = present[0].n;
    assert_eq!(
        (key.queue.as_str(), key.label.as_str(), key.bucket, n),
        ("elsewhere", "QUEUED", 0, 1)
    );
    assert_eq!(
        (key.span_start, key.task_type.as_str(), key.measure),
        (0, "work", Measure::Status)
    );
}

async fn a_pruned_task_is_no_longer_counted(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    fixture.run(id, completed()).await;
    let statistics = history(&fixture).await;
    let keep = Retention {
        ended_ms: 0,
        dead_letter_ms: 0,
    };

    assert_eq!(fixture.store.prune_tasks(&keep, &[id]).await.unwrap(), 1);
    assert!(
        fixture
            .store
            .read_task_counts(&CountFilter::default())
            .await
            .unwrap()
            .is_empty()
    );

    assert_eq!(
        history(&fixture).await,
        statistics,
        "past hours do not change"
    );
}

async fn ends_are_counted_by_the_attempt_that_ended_them(fixture: Arc<Fixture>) {
    for attempts in 1..=5 {
        let id = fixture.submit(new_task()).await;
        for _ in 1..attempts {
            fixture.run(id, snoozed(0)).await;
        }
        fixture.run(id, completed()).await;
    }

    let failing = fixture.submit(new_task()).await;
    fixture.run(failing, fatal()).await;
    let completed = |attempt, n| ("COMPLETED".to_owned(), attempt, n);
    let expected = [
        completed(1, 1),
        completed(2, 1),
        completed(3, 3),
        ("FAILED".to_owned(), 1, 1),
    ];

    assert_eq!(
        measured(&fixture, Measure::Ended).await,
        expected,
        "1, 2, or 3 for any later one"
    );
}

async fn wait_and_run_times_are_counted_by_duration(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    fixture.clock.advance_ms(2 * HOUR_MS);
    let node = fixture.node().await;
    let lease = fixture.claim_this(node, id).await;
    fixture.clock.advance_ms(16 * HOUR_MS);
    fixture.finish(lease, completed()).await;
    let task = fixture.task(id).await;
    let started = task.last_attempt_at.unwrap();
    let wait = bucket_of(started.micros_since(task.due_at));

    let run = bucket_of(task.finished_at.unwrap().micros_since(started));
    assert_eq!(
        measured(&fixture, Measure::Wait).await,
        [("COMPLETED".to_owned(), wait, 1)]
    );
    assert_eq!(
        measured(&fixture, Measure::Run).await,
        [("COMPLETED".to_owned(), run, 1)]
    );

    assert!(wait >= bucket_of(2 * HOUR_MS * 1_000) && run >= bucket_of(16 * HOUR_MS * 1_000));
}

async fn tasks_that_end_together_are_counted_separately(fixture: Arc<Fixture>) {
    let node = fixture.node().await;
    let here = new_task().queue;
    let snoozes = fixture.submit(new_task()).await;
    fixture.run(snoozes, snoozed(0)).await;

    fixture
        .submit_all(vec![
            new_task(),
            NewTask {
                queue: queue_name("elsewhere"),
                ..new_task()
            },
        ])
        .await;

    fixture.clock.advance_ms(2 * HOUR_MS);
    fixture.submit(new_task()).await;
    let mut claimed = fixture.claim_from(node, &[&here], &["work"], MANY).await;
    fixture.clock.advance_ms(16 * HOUR_MS);
    claimed.extend(
        fixture
            .claim_from(node, &["elsewhere"], &["work"], MANY)
            .await,
    );

    fixture.clock.advance_ms(HOUR_MS);
    let report = |task: &TaskRecord| AttemptReport {
        lease: lease_of(task),
        end: completed(),
    };
    let verdicts = fixture
        .finish_all(claimed.iter().map(report).collect())
        .await;

    assert_eq!(verdicts, [Verdict::Applied(Status::Completed); 4]);
    let tasks = fixture.all_tasks().await;
    check_task_counts(&fixture, &tasks).await;

    let sums = |bucket: &dyn Fn(&TaskRecord) -> i32| {
        let mut sums: BTreeMap<i32, i64> = BTreeMap::new();
        tasks
            .iter()
            .for_each(|task| *sums.entry(bucket(task)).or_default() += 1);
        sums.into_iter()
            .map(|(bucket, n)| ("COMPLETED".to_owned(), bucket, n))
            .collect::<Vec<_>>()
    };

    let started = |task: &TaskRecord| task.last_attempt_at.unwrap();
    let waits = sums(&|task| bucket_of(started(task).micros_since(task.waits_since())));
    let runs = sums(&|task| bucket_of(task.finished_at.unwrap().micros_since(started(task))));
    assert!(
        waits.len() >= 3 && runs.len() >= 2,
        "they differ: {waits:?} {runs:?}"
    );
    assert_eq!(measured(&fixture, Measure::Wait).await, waits);
    assert_eq!(measured(&fixture, Measure::Run).await, runs);

    assert_eq!(
        measured(&fixture, Measure::Ended).await,
        sums(&|task| i32::try_from(task.attempt).unwrap())
    );
}

async fn a_task_that_never_ran_has_no_wait_and_run_time(fixture: Arc<Fixture>) {
    let id = fixture
        .submit(NewTask {
            run_at: RunAt::AfterMs(HOUR_MS),
            ..new_task()
        })
        .await;

    fixture.store.cancel_task(&Access::All, id).await.unwrap();
    assert_eq!(
        measured(&fixture, Measure::Ended).await,
        [("CANCELLED".to_owned(), 0, 1)]
    );
    assert!(measured(&fixture, Measure::Wait).await.is_empty());
    assert!(measured(&fixture, Measure::Run).await.is_empty());
}

async fn statistics_are_read_by_the_hour(fixture: Arc<Fixture>) {
    let mut spans = Vec::new();
    for _ in 0..3 {
        let id = fixture.submit(new_task()).await;
        fixture.run(id, completed()).await;
        let finished = fixture.task(id).await.finished_at.unwrap().as_micros();
        spans.push(finished.div_euclid(SPAN_MICROS) * SPAN_MICROS);
        fixture.clock.advance_ms(2 * HOUR_MS);
    }

    let ended_in = |from: i64, to: i64| {
        let fixture = Arc::clone(&fixture);
        async move {
            let range = (Timestamp::from_micros(from), Timestamp::from_micros(to));
            let task_counts = fixture
                .store
                .read_task_counts(&CountFilter { spans: Some(range) })
                .await
                .unwrap();

            assert!(
                task_counts.windows(2).all(|pair| pair[0].key < pair[1].key),
                "sorted by key"
            );
            let ended = task_counts
                .into_iter()
                .filter(|task_count| task_count.key.measure == Measure::Ended);

            ended
                .map(|task_count| task_count.key.span_start)
                .collect::<Vec<i64>>()
        }
    };

    assert_eq!(
        ended_in(spans[0], spans[2]).await,
        spans[..2],
        "the range includes its start and excludes its end"
    );
    assert_eq!(ended_in(spans[0] + 1, spans[2] + 1).await, spans[1..]);
    assert!(ended_in(0, 1).await.is_empty(), "the present is no hour");
    assert_eq!(ended_in(i64::MIN, i64::MAX).await, spans);
}

async fn a_task_that_ends_twice_is_counted_twice(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    fixture.run(id, fatal()).await;
    fixture
        .store
        .retry_task(&Access::All, id, RetryScope::Task)
        .await
        .unwrap();
    fixture.run(id, completed()).await;
    let expected = [("COMPLETED".to_owned(), 2, 1), ("FAILED".to_owned(), 1, 1)];

    assert_eq!(measured(&fixture, Measure::Ended).await, expected);
    assert_eq!(fixture.status(id).await, Status::Completed);
}
