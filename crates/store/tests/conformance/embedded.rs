//! What only the embedded store promises: one process, one writer, and no busy error for anyone.

use std::sync::Arc;

use libtest_mimic::Trial;
use longhaul_domain::{
    Json, NewTask,
    contract::{Store, store::Access},
    event::OutboxPolicy,
};
use longhaul_store::{SqlStore, StoreOptions};
use sqlx::{Connection, Executor};

use crate::{fresh::Backend, trial};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("sqlite::embedded::a_second_process_is_refused".to_owned(), a_second_process_is_refused),
        trial("sqlite::embedded::a_busy_file_never_reaches_a_caller".to_owned(), a_busy_file_never_reaches_a_caller),
        trial("sqlite::embedded::a_store_in_memory_is_refused".to_owned(), a_store_in_memory_is_refused),
        trial("sqlite::embedded::accepted_is_on_disk".to_owned(), accepted_is_on_disk),
    ]
}

fn task() -> NewTask {
    NewTask::new("u-1", "t", "q", Json::parse("parameters", "{}").unwrap())
}

async fn a_second_process_is_refused() {
    let (store, _, database) = Backend::Sqlite.store(OutboxPolicy::default()).await;
    let refused = SqlStore::open(&database.url, StoreOptions::default()).await.unwrap_err();
    assert!(refused.to_string().contains("open in another process"), "{refused}");
    drop(store);
}

async fn a_store_in_memory_is_refused() {
    let refused = SqlStore::open("sqlite::memory:", StoreOptions::default()).await.unwrap_err();
    assert!(refused.to_string().contains("not be durable"), "{refused}");
}

/// Somebody else holds the write lock for longer than SQLite's own patience; the submits wait it out.
async fn a_busy_file_never_reaches_a_caller() {
    let (store, _, database) = Backend::Sqlite.store(OutboxPolicy::default()).await;
    store.submit_task(task()).await.unwrap();
    let mut outsider = sqlx::SqliteConnection::connect(&database.url).await.unwrap();
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
        store.get_task(&Access::All, submitted.task_id).await.unwrap();
    }
}

/// A second look at the file by another program sees every task that was acknowledged, and full durability is on.
async fn accepted_is_on_disk() {
    let (store, _, database) = Backend::Sqlite.store(OutboxPolicy::default()).await;
    let submits = (0..50).map(|_| store.submit_task(task()));
    futures::future::try_join_all(submits).await.unwrap();
    assert_eq!(database.count("SELECT count(*) FROM tasks").await, 50);
    assert_eq!(store.durability().await.unwrap(), "wal, synchronous=2");
}
