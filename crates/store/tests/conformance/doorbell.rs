//! PostgreSQL's doorbell: the suite of its contract, and what only a bell between processes promises.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use longhaul_domain::{
    Json, NewTask, RunAt, Timestamp,
    contract::{Store as _, doorbell::RungFor},
    event::OutboxPolicy,
};
use longhaul_store::SqlStore;
use longhaul_testkit::{
    doorbell_suite::{self, DoorbellFactory},
    suite::Fresh,
};

use crate::{
    fresh::{Backend, options},
    trial,
};

pub(crate) fn trials() -> Vec<Trial> {
    let factory: DoorbellFactory = Arc::new(|()| {
        Box::pin(async {
            let (store, clock, database) = Backend::Postgres.store(OutboxPolicy::default()).await;
            let bell = store.doorbell().unwrap();
            Fresh::new(bell, clock, Some(Box::new((store, database))))
        })
    });
    let mut trials = doorbell_suite::trials("postgres", &factory);
    trials.push(trial(
        "postgres::doorbell::another_process_hears_the_ring".to_owned(),
        another_process_hears_the_ring,
    ));
    trials.push(trial(
        "postgres::doorbell::a_commit_rings_for_its_task".to_owned(),
        a_commit_rings_for_its_task,
    ));
    trials.push(trial(
        "postgres::doorbell::the_bell_leaves_operations_their_connections".to_owned(),
        leaves_connections,
    ));
    trials
}

/// Without anybody's ring beside it: a lone submit, several that share a commit, and several alike. Only one that is alone and due
/// is named.
async fn a_commit_rings_for_its_task() {
    let (here, clock, database) = Backend::Postgres.store(OutboxPolicy::default()).await;
    let there = SqlStore::connect(&database.url, options(&clock, OutboxPolicy::default()))
        .await
        .unwrap();
    let (own, hears) = (here.doorbell().unwrap(), there.doorbell().unwrap());
    hears.heard().await;
    assert!(own.take_turn(), "the bell is at rest");
    let plain = NewTask::new("u-1", "work", "lane", Json::parse("test", "{}").unwrap());
    let ringing = NewTask {
        rings: true,
        ..plain.clone()
    };
    let other = NewTask {
        priority: 3,
        ..plain.clone()
    };
    let later = NewTask {
        run_at: RunAt::AfterMs(60_000),
        ..ringing.clone()
    };
    let long_ago = NewTask {
        run_at: RunAt::At(Timestamp::from_micros(1)),
        ..ringing.clone()
    };
    let batches = [
        vec![ringing.clone()],
        vec![plain, ringing.clone()],
        vec![other, ringing],
        vec![later],
        vec![long_ago],
    ];
    for (batch, is_named) in batches.into_iter().zip([true, false, false, false, true]) {
        let submitted = here.submit_tasks(batch).await.unwrap();
        let heard = tokio::time::timeout(Duration::from_secs(60), hears.heard())
            .await
            .expect("the other process hears");
        let (queue, task_type) = ("lane".to_owned(), "work".to_owned());
        let named = vec![RungFor {
            task_id: submitted[0].task_id,
            queue,
            task_type,
        }];
        assert_eq!(heard, if is_named { named } else { Vec::new() });
    }
    // In this process it is heard without listening: the connection for that may be away.
    own.rung();
    tokio::time::timeout(Duration::from_secs(60), own.heard())
        .await
        .expect("this process hears");
    drop((own, hears));
    there.close().await;
    here.close().await;
}

/// More operations at once than there are connections, while both ends of the bell are in use.
async fn leaves_connections() {
    let (store, _, _database) = Backend::Postgres.store(OutboxPolicy::default()).await;
    let bell = store.doorbell().unwrap();
    bell.heard().await;
    bell.ring("default");
    bell.heard().await;
    let told = futures::future::join_all((0..200).map(|_| store.now())).await;
    assert!(told.iter().all(Result::is_ok), "{told:?}");
    drop(bell);
    store.close().await;
}

async fn another_process_hears_the_ring() {
    let (here, clock, database) = Backend::Postgres.store(OutboxPolicy::default()).await;
    let there = SqlStore::connect(&database.url, options(&clock, OutboxPolicy::default()))
        .await
        .unwrap();
    let (rings, hears) = (here.doorbell().unwrap(), there.doorbell().unwrap());
    // Whoever begins to listen is told to look once.
    hears.heard().await;
    for _ in 0..5 {
        rings.ring("default");
        tokio::time::timeout(Duration::from_secs(60), hears.heard())
            .await
            .expect("the other process hears");
    }
    drop((rings, hears));
    there.close().await;
    here.close().await;
}
