//! The conformance suite of the progress cache contract.

use futures::future::join_all;
use libtest_mimic::Trial;
use longhaul_domain::{
    TaskId,
    contract::progress_cache::{LiveProgress, ProgressCache},
};
use serde_json::json;

use crate::suite::{self, Case, Dice, Factory, cases, random_task_id};

/// Makes an empty cache with room for 20,000 tasks.
pub type ProgressCacheFactory = Factory<(), dyn ProgressCache>;

/// One trial for each case, named `{backend}::progress_cache::{sentence}`.
pub fn trials(backend: &str, factory: &ProgressCacheFactory) -> Vec<Trial> {
    suite::trials(backend, "progress_cache", factory, cases())
}

fn cases() -> Vec<Case<ProgressCacheFactory>> {
    cases![
        a_task_without_reports_has_no_progress,
        progress_is_read_as_it_was_reported,
        a_newer_report_replaces_an_older_one,
        an_older_report_changes_nothing,
        a_new_attempt_is_newer_at_any_sequence,
        the_largest_numbers_are_compared_exactly,
        the_newest_report_of_a_batch_remains,
        answers_have_the_order_of_the_request,
        forgotten_progress_is_gone_and_can_be_reported_again,
        empty_calls_do_nothing,
        one_call_handles_many_tasks,
        the_newest_report_of_many_writers_remains,
    ]
}

fn report(attempt: u32, sequence: u64) -> LiveProgress {
    LiveProgress {
        attempt,
        sequence,
        progress: json!({ "percent": 12.5, "at": [attempt, sequence] }),
    }
}

async fn put(cache: &dyn ProgressCache, task: TaskId, attempt: u32, sequence: u64) {
    cache
        .put(&[(task, report(attempt, sequence))])
        .await
        .unwrap();
}

async fn age(cache: &dyn ProgressCache, task: TaskId) -> Option<(u32, u64)> {
    let found = cache.get(&[task]).await.unwrap();
    assert_eq!(found.len(), 1);
    found[0].as_ref().map(LiveProgress::age)
}

async fn a_task_without_reports_has_no_progress(make: ProgressCacheFactory) {
    let cache = make(()).await;
    assert_eq!(cache.get(&[random_task_id()]).await, Ok(vec![None]));
}

async fn progress_is_read_as_it_was_reported(make: ProgressCacheFactory) {
    let cache = make(()).await;
    let details = json!({
        "text": "\u{0}\"\\\n\u{1f980} 进度",
        "deep": { "list": [null, true, -0.5, 1e300, ""] },
    });
    for progress in [
        json!(null),
        json!(50),
        json!("half"),
        details,
        json!("x".repeat(200_000)),
    ] {
        let task = random_task_id();
        let whole = LiveProgress {
            attempt: 3,
            sequence: 7,
            progress,
        };
        cache.put(&[(task, whole.clone())]).await.unwrap();
        assert_eq!(cache.get(&[task]).await, Ok(vec![Some(whole)]));
    }
}

async fn a_newer_report_replaces_an_older_one(make: ProgressCacheFactory) {
    let cache = make(()).await;
    let task = random_task_id();
    for sequence in [1, 2, 9, 10, 11, 100] {
        put(&*cache, task, 1, sequence).await;
        assert_eq!(
            cache.get(&[task]).await,
            Ok(vec![Some(report(1, sequence))])
        );
    }
}

async fn an_older_report_changes_nothing(make: ProgressCacheFactory) {
    let cache = make(()).await;
    let task = random_task_id();
    put(&*cache, task, 2, 10).await;
    for (attempt, sequence) in [(2, 9), (2, 1), (1, 10), (1, u64::MAX), (0, 0)] {
        put(&*cache, task, attempt, sequence).await;
        assert_eq!(age(&*cache, task).await, Some((2, 10)));
    }

    let again = LiveProgress {
        progress: json!("another"),
        ..report(2, 10)
    };
    cache.put(&[(task, again)]).await.unwrap();
    assert_eq!(
        cache.get(&[task]).await,
        Ok(vec![Some(report(2, 10))]),
        "the first report with a number counts"
    );
}

async fn a_new_attempt_is_newer_at_any_sequence(make: ProgressCacheFactory) {
    let cache = make(()).await;
    let task = random_task_id();
    for (attempt, sequence) in [(1, 1_000), (2, 1), (9, 500), (10, 1)] {
        put(&*cache, task, attempt, sequence).await;
        assert_eq!(age(&*cache, task).await, Some((attempt, sequence)));
    }
}

async fn the_largest_numbers_are_compared_exactly(make: ProgressCacheFactory) {
    let cache = make(()).await;
    let task = random_task_id();
    for (attempt, sequence) in [
        (1, u64::MAX - 1),
        (1, u64::MAX),
        (u32::MAX - 1, 1),
        (u32::MAX, u64::MAX),
    ] {
        put(&*cache, task, attempt, sequence).await;
        put(&*cache, task, attempt, sequence - 1).await;
        assert_eq!(age(&*cache, task).await, Some((attempt, sequence)));
    }
}

async fn the_newest_report_of_a_batch_remains(make: ProgressCacheFactory) {
    let cache = make(()).await;
    let task = random_task_id();
    let batch = [(1, 3), (2, 1), (1, 9), (2, 4), (2, 2)]
        .map(|(attempt, sequence)| (task, report(attempt, sequence)));
    cache.put(&batch).await.unwrap();
    assert_eq!(age(&*cache, task).await, Some((2, 4)));
}

async fn answers_have_the_order_of_the_request(make: ProgressCacheFactory) {
    let cache = make(()).await;
    let tasks: Vec<TaskId> = (0..5).map(|_| random_task_id()).collect();
    put(&*cache, tasks[1], 1, 1).await;
    put(&*cache, tasks[3], 1, 3).await;
    let asked = [tasks[3], tasks[0], tasks[1], tasks[3]];
    let ages = cache
        .get(&asked)
        .await
        .unwrap()
        .into_iter()
        .map(|found| found.map(|one| one.sequence));

    assert_eq!(ages.collect::<Vec<_>>(), [Some(3), None, Some(1), Some(3)]);
}

async fn forgotten_progress_is_gone_and_can_be_reported_again(make: ProgressCacheFactory) {
    let cache = make(()).await;
    let gone = random_task_id();
    let stays = random_task_id();
    put(&*cache, gone, 5, 5).await;
    put(&*cache, stays, 1, 1).await;
    cache.forget(&[gone, random_task_id()]).await.unwrap();
    assert_eq!(
        (age(&*cache, gone).await, age(&*cache, stays).await),
        (None, Some((1, 1)))
    );

    put(&*cache, gone, 1, 1).await;
    assert_eq!(age(&*cache, gone).await, Some((1, 1)));
}

async fn empty_calls_do_nothing(make: ProgressCacheFactory) {
    let cache = make(()).await;
    cache.put(&[]).await.unwrap();
    cache.forget(&[]).await.unwrap();
    assert_eq!(cache.get(&[]).await, Ok(Vec::new()));
}

async fn one_call_handles_many_tasks(make: ProgressCacheFactory) {
    let cache = make(()).await;
    let all: Vec<_> = (1..=3_000)
        .map(|number| (random_task_id(), report(1, number)))
        .collect();
    let tasks: Vec<TaskId> = all.iter().map(|(task, _)| *task).collect();

    cache.put(&all).await.unwrap();
    let found = cache.get(&tasks).await.unwrap();
    assert!(
        found
            .iter()
            .zip(&all)
            .all(|(found, (_, put))| found.as_ref() == Some(put))
    );

    cache.forget(&tasks[1..]).await.unwrap();
    let left = cache.get(&tasks).await.unwrap();
    assert_eq!(left.iter().position(Option::is_some), Some(0));
    assert_eq!(left.iter().flatten().count(), 1);
}

async fn the_newest_report_of_many_writers_remains(make: ProgressCacheFactory) {
    let cache = make(()).await;
    let tasks: Vec<TaskId> = (0..20).map(|_| random_task_id()).collect();
    let write = |writer: u64| {
        let cache = cache.share();
        let tasks = tasks.clone();
        tokio::spawn(async move {
            let mut dice = Dice::new(writer);
            for _ in 0..50 {
                let batch: Vec<_> = tasks
                    .iter()
                    .map(|task| (*task, report(1, dice.below(1_000) * 10 + writer)))
                    .collect();
                cache.put(&batch).await.unwrap();
            }

            cache
                .put(&[(tasks[writer as usize], report(2, writer))])
                .await
                .unwrap();
        })
    };

    for written in join_all((0..10).map(write)).await {
        written.unwrap();
    }

    // The writers' random numbers are reproducible, so the newest report is known.
    let mut newest = vec![0; tasks.len()];
    for writer in 0..10 {
        let mut dice = Dice::new(writer);
        (0..50).for_each(|_| {
            newest
                .iter_mut()
                .for_each(|one| *one = (dice.below(1_000) * 10 + writer).max(*one))
        });
    }

    for (number, task) in tasks.iter().enumerate() {
        let expected = if number < 10 {
            (2, number as u64)
        } else {
            (1, newest[number])
        };
        assert_eq!(age(&*cache, *task).await, Some(expected));
    }
}
