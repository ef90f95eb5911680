//! Submit in the caller's own transaction (R10): the task and the caller's data commit or vanish
//! together.

use std::{future::poll_fn, pin::pin, task::Poll};

use libtest_mimic::Trial;
use longhaul_domain::{
    Idempotency, Json, NewTask, StoreError,
    contract::store::{Access, Submitted, TaskCommands, TaskReads},
    event::OutboxPolicy,
    filter::{PageRequest, TaskFilter},
};
use longhaul_store::SqlStore;
use longhaul_testkit::names::queue_name;
use sqlx::Connection;

use crate::{
    fresh::{Backend, FreshDatabase},
    trial,
};

pub(crate) fn trials(backend: Backend) -> Vec<Trial> {
    let name = |sentence: &str| format!("{}::transactions::{sentence}", backend.name());
    let mut trials = vec![
        trial(name("a_committed_transaction_makes_its_tasks"), move || {
            outcome(backend, true)
        }),
        trial(name("a_transaction_rolled_back_makes_none"), move || {
            outcome(backend, false)
        }),
        trial(
            name("a_refused_batch_leaves_nothing_and_the_callers_work_stays"),
            move || refused(backend),
        ),
        trial(
            name("a_submit_that_is_given_up_leaves_the_transaction_to_be_rolled_back"),
            move || abandoned(backend),
        ),
        trial(
            name("a_connection_without_a_transaction_is_refused"),
            move || not_open(backend),
        ),
        trial(
            name("another_databases_transaction_is_refused"),
            move || other(backend),
        ),
    ];

    if backend == Backend::Sqlite {
        trials.push(trial(
            name("a_transaction_that_read_before_it_may_write_is_told_how_to_begin"),
            read_first,
        ));
    }

    trials
}

fn order(type_name: &str) -> NewTask {
    NewTask::new(
        "u-1",
        type_name,
        queue_name("orders"),
        Json::parse("parameters", r#"{"order":7}"#).unwrap(),
    )
}

async fn outcome(backend: Backend, commits: bool) {
    let (store, _, database) = backend.store(OutboxPolicy::default()).await;
    database
        .execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        .await;
    let tasks = [order("ship"), order("bill")];
    let submitted = in_transaction(&store, &database, &tasks, commits)
        .await
        .unwrap();

    assert_eq!(submitted.len(), 2);

    let found = store
        .list_tasks(
            &Access::All,
            &TaskFilter::default(),
            &PageRequest::first(10),
        )
        .await
        .unwrap();

    let ids: Vec<_> = found.items.iter().rev().map(|task| task.id).collect();
    let made: Vec<_> = submitted.iter().map(|one| one.task_id).collect();
    assert_eq!(ids, if commits { made } else { Vec::new() });
    let orders = database.count("SELECT count(*) FROM orders").await;
    assert_eq!(orders, i64::from(commits));

    // Lanes that a rolled-back transaction made are not remembered: the next task of that kind is
    // claimable.
    let next = store.submit_task(order("ship")).await.unwrap();
    let lanes = database
        .count("SELECT count(*) FROM tasks JOIN lanes ON lanes.id = tasks.lane")
        .await;

    assert_eq!(lanes, if commits { 3 } else { 1 }, "{next:?}");
}

async fn in_transaction(
    store: &SqlStore,
    database: &FreshDatabase,
    tasks: &[NewTask],
    commits: bool,
) -> Result<Vec<Submitted>, StoreError> {
    const WRITE: &str = "INSERT INTO orders (id) VALUES (7)";

    macro_rules! run {
        ($connection:ty, $submit:ident, $begin:expr) => {{
            let mut connection = <$connection>::connect(&database.url).await.unwrap();
            let mut transaction = connection.begin_with($begin).await.unwrap();
            sqlx::query(WRITE).execute(&mut *transaction).await.unwrap();
            let submitted = store.$submit(&mut transaction, tasks).await;
            match commits {
                true => transaction.commit().await.unwrap(),
                false => transaction.rollback().await.unwrap(),
            }

            submitted
        }};
    }

    match database.backend {
        Backend::Sqlite => run!(sqlx::SqliteConnection, submit_in_sqlite, "BEGIN IMMEDIATE"),
        Backend::Postgres => run!(sqlx::PgConnection, submit_in_postgres, "BEGIN"),
        Backend::MySql => run!(sqlx::MySqlConnection, submit_in_mysql, "START TRANSACTION"),
    }
}

/// The first task takes its key before the second is refused for its own: the key must be free
/// again, although the caller goes on and commits.
async fn refused(backend: Backend) {
    let (store, _, database) = backend.store(OutboxPolicy::default()).await;
    database
        .execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        .await;
    store.submit_task(keyed("taken", 1)).await.unwrap();
    let tasks = [keyed("free", 1), keyed("taken", 2)];
    let refused = in_transaction(&store, &database, &tasks, true).await;

    assert!(
        matches!(refused, Err(StoreError::IdempotencyMismatch)),
        "{refused:?}"
    );
    assert_eq!(database.count("SELECT count(*) FROM orders").await, 1);
    assert_eq!(database.count("SELECT count(*) FROM tasks").await, 1);

    let made = store.submit_task(keyed("free", 1)).await.unwrap();
    assert!(!made.repeated);
    store.get_task(&Access::All, made.task_id).await.unwrap();
}

fn keyed(key: &str, digest: u8) -> NewTask {
    let idempotency = Some(Idempotency {
        key: key.to_owned(),
        digest: [digest; 32],
        ttl_ms: 60_000,
    });

    NewTask {
        idempotency,
        ..order("ship")
    }
}

/// Whatever the submit was doing when its caller gave it up, for a timeout say: the transaction is
/// still the caller's to roll back, and then nothing is left.
async fn abandoned(backend: Backend) {
    let (store, _, database) = backend.store(OutboxPolicy::default()).await;
    database
        .execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        .await;
    let mut polls = 1;

    while !abandoned_after(&store, &database, polls).await {
        for rows in [
            "SELECT count(*) FROM tasks",
            "SELECT count(*) FROM orders",
            "SELECT count(*) FROM idempotency_keys",
        ] {
            assert_eq!(
                database.count(rows).await,
                0,
                "{rows}, given up after {polls} polls"
            );
        }

        // A new connection alone, while its password is worked out, takes hundreds.
        polls += 1 + polls / 8;
    }

    assert!(polls > 1, "it was never given up");
    store.submit_task(keyed("one", 2)).await.unwrap();
}

/// Gives a submit up after so many polls, writes once more, and rolls back. Answers with whether
/// the submit was through.
async fn abandoned_after(store: &SqlStore, database: &FreshDatabase, polls: usize) -> bool {
    macro_rules! run {
        ($connection:ty, $submit:ident, $begin:expr) => {{
            let mut connection = <$connection>::connect(&database.url).await.unwrap();
            let mut transaction = connection.begin_with($begin).await.unwrap();
            let tasks = [keyed("one", 1), keyed("two", 2)];
            let submitted = first_polls(store.$submit(&mut transaction, &tasks), polls).await;
            match sqlx::query("INSERT INTO orders (id) VALUES (1)")
                .execute(&mut *transaction)
                .await
            {
                Ok(_) => transaction.rollback().await.unwrap(),
                // If a statement is dropped while it is prepared, sqlx may leave the server's
                // answer unread. Closing the connection rolls back, too.
                Err(sqlx::Error::Protocol(_)) if database.backend == Backend::MySql => {
                    drop(transaction)
                }
                Err(error) => panic!("given up after {polls} polls: {error}"),
            }
            submitted.map(Result::unwrap).is_some()
        }};
    }

    match database.backend {
        Backend::Sqlite => run!(sqlx::SqliteConnection, submit_in_sqlite, "BEGIN IMMEDIATE"),
        Backend::Postgres => run!(sqlx::PgConnection, submit_in_postgres, "BEGIN"),
        Backend::MySql => run!(sqlx::MySqlConnection, submit_in_mysql, "START TRANSACTION"),
    }
}

/// The answer of the future if it comes within so many polls.
async fn first_polls<T>(future: impl Future<Output = T>, polls: usize) -> Option<T> {
    let mut future = pin!(future);
    let mut left = polls;
    poll_fn(|context| {
        let polled = future.as_mut().poll(context).map(Some);
        left -= 1;
        if left == 0 && polled.is_pending() {
            Poll::Ready(None)
        } else {
            polled
        }
    })
    .await
}

async fn not_open(backend: Backend) {
    let (store, _, database) = backend.store(OutboxPolicy::default()).await;
    macro_rules! run {
        ($connection:ty, $submit:ident) => {{
            let mut connection = <$connection>::connect(&database.url).await.unwrap();
            store.$submit(&mut connection, &[order("ship")]).await
        }};
    }

    let refused = match backend {
        Backend::Sqlite => run!(sqlx::SqliteConnection, submit_in_sqlite),
        Backend::Postgres => run!(sqlx::PgConnection, submit_in_postgres),
        Backend::MySql => run!(sqlx::MySqlConnection, submit_in_mysql),
    };
    assert!(matches!(refused, Err(StoreError::Invalid(invalid)) if invalid.field == "transaction"));
    assert_eq!(database.count("SELECT count(*) FROM tasks").await, 0);
}

async fn read_first() {
    let (store, _, database) = Backend::Sqlite.store(OutboxPolicy::default()).await;
    let mut connection = sqlx::SqliteConnection::connect(&database.url)
        .await
        .unwrap();
    let mut transaction = connection.begin().await.unwrap();

    sqlx::query("SELECT count(*) FROM tasks")
        .execute(&mut *transaction)
        .await
        .unwrap();
    store.submit_task(order("first")).await.unwrap();
    let refused = store
        .submit_in_sqlite(&mut transaction, &[order("ship")])
        .await;

    assert!(
        matches!(&refused, Err(StoreError::Unavailable(why)) if why.starts_with("begin the \
             transaction with BEGIN IMMEDIATE")),
        "{refused:?}"
    );
}

async fn other(backend: Backend) {
    let (store, _, _database) = backend.store(OutboxPolicy::default()).await;
    let stranger = if backend == Backend::Sqlite {
        Backend::Postgres
    } else {
        Backend::Sqlite
    };
    let elsewhere = FreshDatabase::make(stranger).await;
    let tasks = [order("ship")];

    let refused = match stranger {
        Backend::Postgres => {
            let mut connection = sqlx::PgConnection::connect(&elsewhere.url).await.unwrap();
            store.submit_in_postgres(&mut connection, &tasks).await
        }
        Backend::Sqlite | Backend::MySql => {
            let url = format!("{}?mode=rwc", elsewhere.url);
            let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
            store.submit_in_sqlite(&mut connection, &tasks).await
        }
    };
    assert!(matches!(refused, Err(StoreError::Invalid(invalid)) if invalid.field == "transaction"));
}
