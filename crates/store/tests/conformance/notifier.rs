//! PostgreSQL's notifier: the suite of its contract, and what only a hint between processes
//! promises.

use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use longhaul_domain::{
    Json, NewTask, RunAt, Timestamp,
    contract::{
        notifier::HintedTask,
        store::{TaskCommands, TaskReads},
    },
    event::OutboxPolicy,
};
use longhaul_store::SqlStore;
use longhaul_testkit::{
    names::queue_name,
    notifier_suite::{self, NotifierFactory},
    suite::Fresh,
};

use crate::{
    fresh::{Backend, options},
    trial,
};

pub(crate) fn trials() -> Vec<Trial> {
    let factory: NotifierFactory = Arc::new(|()| {
        Box::pin(async {
            let (store, clock, database) = Backend::Postgres.store(OutboxPolicy::default()).await;
            let hint = store.notifier().unwrap();
            Fresh::new(hint, clock, Some(Box::new((store, database))))
        })
    });

    let mut trials = notifier_suite::trials("postgres", &factory);
    trials.push(trial(
        "postgres::notifier::another_process_hears_the_hint".to_owned(),
        another_process_hears_the_hint,
    ));
    trials.push(trial(
        "postgres::notifier::a_commit_hints_for_its_task".to_owned(),
        a_commit_hints_for_its_task,
    ));

    trials.push(trial(
        "postgres::notifier::the_hint_leaves_operations_their_connections".to_owned(),
        leaves_connections,
    ));

    trials
}

/// Without anybody's hint beside it: a lone submit, several that share a commit, and several alike.
/// Only one that is alone and due is named.
async fn a_commit_hints_for_its_task() {
    let (here, clock, database) = Backend::Postgres.store(OutboxPolicy::default()).await;
    let there = SqlStore::connect(&database.url, options(&clock, OutboxPolicy::default()))
        .await
        .unwrap();
    let own = here.notifier().unwrap();
    let hears = there.notifier().unwrap();

    hears.notified().await;
    assert!(own.take_turn(), "the hint is at rest");
    let plain = NewTask::new(
        "u-1",
        "work",
        queue_name("lane"),
        Json::parse("test", "{}").unwrap(),
    );
    let dispatching = NewTask {
        notifies: true,
        ..plain.clone()
    };
    let other = NewTask {
        priority: 3,
        ..plain.clone()
    };

    let later = NewTask {
        run_at: RunAt::AfterMs(60_000),
        ..dispatching.clone()
    };
    let long_ago = NewTask {
        run_at: RunAt::At(Timestamp::from_micros(1)),
        ..dispatching.clone()
    };
    let batches = [
        vec![dispatching.clone()],
        vec![plain, dispatching.clone()],
        vec![other, dispatching],
        vec![later],
        vec![long_ago],
    ];

    for (batch, is_named) in batches.into_iter().zip([true, false, false, false, true]) {
        let submitted = here.submit_tasks(batch).await.unwrap();
        let heard = tokio::time::timeout(Duration::from_secs(60), hears.notified())
            .await
            .expect("the other process hears");
        let queue = queue_name("lane");
        let task_type = "work".to_owned();
        let named = vec![HintedTask {
            task_id: submitted[0].task_id,
            queue,
            task_type,
        }];

        assert_eq!(heard, if is_named { named } else { Vec::new() });
    }

    // In this process it is heard without listening: the connection for that may be away.
    own.notified_in_commit();
    tokio::time::timeout(Duration::from_secs(60), own.notified())
        .await
        .expect("this process hears");
    drop((own, hears));
    there.close().await;
    here.close().await;
}

/// More operations at once than there are connections, while both ends of the hint are in use.
async fn leaves_connections() {
    let (store, _, _database) = Backend::Postgres.store(OutboxPolicy::default()).await;
    let hint = store.notifier().unwrap();
    hint.notified().await;
    hint.notify("default");
    hint.notified().await;
    let told = futures::future::join_all((0..200).map(|_| store.now())).await;
    assert!(told.iter().all(Result::is_ok), "{told:?}");
    drop(hint);
    store.close().await;
}

async fn another_process_hears_the_hint() {
    let (here, clock, database) = Backend::Postgres.store(OutboxPolicy::default()).await;
    let there = SqlStore::connect(&database.url, options(&clock, OutboxPolicy::default()))
        .await
        .unwrap();
    let here_notifier = here.notifier().unwrap();
    let there_notifier = there.notifier().unwrap();

    // A notifier that begins to listen notifies once.
    there_notifier.notified().await;
    for _ in 0..5 {
        here_notifier.notify("default");
        tokio::time::timeout(Duration::from_secs(60), there_notifier.notified())
            .await
            .expect("the other process hears");
    }

    drop((here_notifier, there_notifier));
    there.close().await;
    here.close().await;
}
