//! What only the embedded store promises: one process, one writer, and no busy error for anyone.

use std::sync::Arc;

use futures::future::BoxFuture;
use libtest_mimic::Trial;
use longhaul_domain::{
    Idempotency, Json, NewTask, StoreError,
    contract::store::{Access, Queues, TaskCommands, TaskReads},
    event::OutboxPolicy,
    lifecycle::reschedule::Reschedule,
};
use longhaul_store::{SqlStore, StoreOptions};
use longhaul_testkit::names::queue_name;
use sqlx::{Connection, Executor};

use crate::{fresh::Backend, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial(
            "sqlite::embedded::a_second_process_is_refused".to_owned(),
            a_second_process_is_refused,
        ),
        trial(
            "sqlite::embedded::a_busy_file_never_reaches_a_caller".to_owned(),
            a_busy_file_never_reaches_a_caller,
        ),
        trial(
            "sqlite::embedded::a_locked_file_is_reported_within_ten_seconds".to_owned(),
            a_locked_file_is_reported_within_ten_seconds,
        ),
        trial(
            "sqlite::embedded::a_store_in_memory_is_refused".to_owned(),
            a_store_in_memory_is_refused,
        ),
        trial(
            "sqlite::embedded::accepted_is_on_disk".to_owned(),
            accepted_is_on_disk,
        ),
        trial(
            "sqlite::embedded::in_a_shared_commit_each_hears_its_own_answer".to_owned(),
            in_a_shared_commit_each_hears_its_own_answer,
        ),
        trial(
            "sqlite::embedded::a_caller_that_rests_holds_up_nobody".to_owned(),
            a_caller_that_rests_holds_up_nobody,
        ),
    ]
}

fn task() -> NewTask {
    NewTask::new(
        "u-1",
        "t",
        queue_name("q"),
        Json::parse("parameters", "{}").unwrap(),
    )
}

async fn a_second_process_is_refused() {
    let (store, _, database) = Backend::Sqlite.store(OutboxPolicy::default()).await;
    let refused = SqlStore::open(&database.url, StoreOptions::default())
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("open in another process"),
        "{refused}"
    );
    drop(store);
}

async fn a_store_in_memory_is_refused() {
    let refused = SqlStore::open("sqlite::memory:", StoreOptions::default())
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("not be durable"), "{refused}");
}

/// Somebody else holds the write lock for longer than SQLite's own patience; the submits wait it
/// out.
async fn a_busy_file_never_reaches_a_caller() {
    let (store, _, database) = Backend::Sqlite.store(OutboxPolicy::default()).await;
    store.submit_task(task()).await.unwrap();
    let mut outsider = sqlx::SqliteConnection::connect(&database.url)
        .await
        .unwrap();

    outsider.execute("BEGIN IMMEDIATE").await.unwrap();
    let store = Arc::new(store);
    let submits: Vec<_> = (0..8)
        .map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.submit_task(task()).await })
        })
        .collect();

    // Reads go on meanwhile.
    let held_since = std::time::Instant::now();
    while held_since.elapsed() < std::time::Duration::from_millis(5_500) {
        assert_eq!(store.list_queues().await.unwrap().len(), 1);
        tokio::task::yield_now().await;
    }

    assert!(submits.iter().all(|submit| !submit.is_finished()));
    outsider.execute("COMMIT").await.unwrap();
    for submit in submits {
        let submitted = submit.await.unwrap().unwrap();
        store
            .get_task(&Access::All, submitted.task_id)
            .await
            .unwrap();
    }
}

/// All callers share the wait, whatever they queue behind: single submits that fill several groups,
/// a batch with a new lane, and a submit with a claim.
async fn a_locked_file_is_reported_within_ten_seconds() {
    let (store, _, database) = Backend::Sqlite.store(OutboxPolicy::default()).await;
    let known = store.submit_task(task()).await.unwrap().task_id;
    let mut outsider = sqlx::SqliteConnection::connect(&database.url)
        .await
        .unwrap();
    outsider.execute("BEGIN IMMEDIATE").await.unwrap();

    let store = Arc::new(store);
    let mut calls: Vec<BoxFuture<'static, StoreError>> = Vec::new();
    for _ in 0..1_000 {
        let store = Arc::clone(&store);
        calls.push(Box::pin(async move {
            store.submit_task(task()).await.unwrap_err()
        }));
    }
    let lane = |queue: &str| NewTask::new("u-1", "t", queue_name(queue), task().parameters);
    calls.push(Box::pin({
        let store = Arc::clone(&store);
        let batch = vec![lane("new-1"), lane("new-2"), lane("new-3")];
        async move { store.submit_tasks(batch).await.unwrap_err() }
    }));
    calls.push(Box::pin({
        let store = Arc::clone(&store);
        async move {
            let cancelled = store.cancel_task(&Access::All, known).await;
            cancelled.unwrap_err()
        }
    }));

    let asked_at = std::time::Instant::now();
    let timed = calls
        .into_iter()
        .map(|call| tokio::spawn(async move { (call.await, asked_at.elapsed()) }));
    for answer in futures::future::join_all(timed).await {
        let (error, waited) = answer.unwrap();
        assert!(
            error.to_string().contains("locked by another process"),
            "{error}"
        );
        assert!(waited.as_secs() >= 8, "{waited:?} is impatient");
        assert!(waited < std::time::Duration::from_secs(11), "{waited:?}");
    }

    // A refusal is final: nothing is written once the file is free.
    outsider.execute("COMMIT").await.unwrap();
    store.submit_task(task()).await.unwrap();
    assert_eq!(database.count("SELECT count(*) FROM tasks").await, 2);
}

/// A second look at the file by another program sees every task that was acknowledged, and full
/// durability is on.
async fn accepted_is_on_disk() {
    let (store, _, database) = Backend::Sqlite.store(OutboxPolicy::default()).await;
    let submits = (0..50).map(|_| store.submit_task(task()));
    futures::future::try_join_all(submits).await.unwrap();
    assert_eq!(database.count("SELECT count(*) FROM tasks").await, 50);
    assert_eq!(store.durability().await.unwrap(), "wal, synchronous=2");
}

/// Operations that wait for the writer share a commit; a refused one among them changes nothing for
/// the others.
async fn in_a_shared_commit_each_hears_its_own_answer() {
    let (store, _, database) = Backend::Sqlite.store(OutboxPolicy::default()).await;
    let mut tasks = Vec::new();
    for _ in 0..60 {
        tasks.push(store.submit_task(task()).await.unwrap().task_id);
    }
    // Every third is ended and cannot be moved any more.
    for id in tasks.iter().step_by(3) {
        store.cancel_task(&Access::All, *id).await.unwrap();
    }
    let change = Reschedule {
        priority: Some(9),
        ..Reschedule::default()
    };
    let moves = tasks
        .iter()
        .map(|id| store.reschedule_task(&Access::All, *id, &change));
    for (index, answer) in futures::future::join_all(moves)
        .await
        .into_iter()
        .enumerate()
    {
        assert_eq!(answer.is_err(), index % 3 == 0, "task {index}: {answer:?}");
    }
    assert_eq!(
        database
            .count("SELECT count(*) FROM tasks WHERE priority = 9")
            .await,
        40
    );

    // A batch that is refused after it has written its first key takes that key back, and nothing
    // else.
    let keyed = |key: &str, digest: u8| NewTask {
        idempotency: Some(Idempotency {
            key: key.to_owned(),
            digest: [digest; 32],
            ttl_ms: 60_000,
        }),
        ..task()
    };
    store.submit_task(keyed("taken", 1)).await.unwrap();
    let batches = (0..60).map(|n| {
        let second = if n % 3 == 0 {
            keyed("taken", 2)
        } else {
            task()
        };
        store.submit_tasks(vec![keyed(&format!("own-{n}"), 1), second])
    });
    for (index, answer) in futures::future::join_all(batches)
        .await
        .into_iter()
        .enumerate()
    {
        assert_eq!(answer.is_err(), index % 3 == 0, "batch {index}: {answer:?}");
    }
    assert_eq!(
        database
            .count("SELECT count(*) FROM idempotency_keys")
            .await,
        41
    );
    assert_eq!(database.count("SELECT count(*) FROM tasks").await, 61 + 80);
}

/// A future that was polled once and then rests, as in a buffer that is waited for later, holds up
/// nobody.
async fn a_caller_that_rests_holds_up_nobody() {
    let (store, _, database) = Backend::Sqlite.store(OutboxPolicy::default()).await;
    store.submit_task(task()).await.unwrap();
    let mut outsider = sqlx::SqliteConnection::connect(&database.url)
        .await
        .unwrap();

    // Nobody can begin, so the one that rests comes to stand before the others.
    outsider.execute("BEGIN IMMEDIATE").await.unwrap();
    let mut rests = [
        Box::pin(store.submit_task(task())),
        Box::pin(store.submit_task(task())),
    ];
    for resting in &mut rests {
        assert!(futures::poll!(resting.as_mut()).is_pending());
    }

    let mut batch = Box::pin(store.submit_tasks(vec![task()]));
    assert!(futures::poll!(batch.as_mut()).is_pending());
    outsider.execute("COMMIT").await.unwrap();
    store.submit_task(task()).await.unwrap();
    store.submit_tasks(vec![task()]).await.unwrap();

    // One that goes away has asked all the same.
    drop(batch);
    for resting in rests {
        resting.await.unwrap();
    }

    assert_eq!(database.count("SELECT count(*) FROM tasks").await, 6);
}
