//! A network that breaks between a store and its server: operations end, and the store goes on when
//! it can.

use std::net::SocketAddr;
use std::time::Duration;

use libtest_mimic::Trial;
use longhaul_domain::{
    NodeId, StoreError,
    contract::store::{Leases, Maintenance, TaskReads},
};
use longhaul_store::{SqlStore, StoreOptions, connect_mysql, connect_postgres};
use longhaul_testkit::fault_proxy::{Fault, FaultProxy, Way};
use sqlx::Executor as _;

use super::{
    fresh::{Backend, FreshDatabase},
    trial,
};

const DEADLINE: Duration = Duration::from_secs(60);
/// Short, so that the test is.
const OPERATION_WAIT: Duration = Duration::from_millis(400);

pub(crate) fn trials() -> Vec<Trial> {
    let cases = |backend: Backend| {
        let name = |case: &str| format!("{}::network::{case}", backend.name());
        [
            trial(
                name("connections_that_lost_their_other_end_are_given_up"),
                move || half_open(backend),
            ),
            trial(
                name("connections_that_were_cut_are_made_again"),
                move || cut(backend),
            ),
            trial(
                name("an_answer_that_comes_too_late_is_not_taken_for_another"),
                move || late(backend),
            ),
            trial(
                name("a_transaction_that_falls_silent_lets_go_of_its_locks"),
                move || silent(backend),
            ),
        ]
    };

    [Backend::Postgres, Backend::MySql]
        .into_iter()
        .flat_map(cases)
        .collect()
}

/// A store behind a proxy, with several connections that have been used.
async fn behind_a_proxy(backend: Backend) -> (SqlStore, FaultProxy, FreshDatabase) {
    let database = FreshDatabase::make(backend).await;
    let place = database
        .url
        .split('@')
        .nth(1)
        .unwrap()
        .split('/')
        .next()
        .unwrap();

    let server: SocketAddr = place
        .parse()
        .expect("a server of the tests is named by its address");
    let proxy = FaultProxy::before(server, 1).await.unwrap();
    let url = database.url.replace(place, &proxy.address().to_string());
    let options = StoreOptions {
        max_connections: 3,
        operation_wait: OPERATION_WAIT,
        ..StoreOptions::default()
    };

    let store = SqlStore::connect(&url, options).await.unwrap();
    store.migrate().await.unwrap();
    tokio::join!(
        until_it_answers(&store),
        until_it_answers(&store),
        until_it_answers(&store)
    );

    (store, proxy, database)
}

/// Asks until there is an answer; every other answer is that the store is down.
async fn until_it_answers(store: &SqlStore) {
    let answered = async {
        while let Err(error) = store.now().await {
            assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        }
    };

    tokio::time::timeout(DEADLINE, answered)
        .await
        .expect("the store goes on in time");
}

async fn half_open(backend: Backend) {
    let (store, proxy, _database) = behind_a_proxy(backend).await;
    proxy.set(Fault::HalfOpen);
    let asked = tokio::time::timeout(DEADLINE, store.now())
        .await
        .expect("it ends");

    assert!(
        matches!(asked, Err(StoreError::Unavailable(_))),
        "{asked:?}"
    );
    proxy.heal();

    // More often than there are connections: none of them may stay lost.
    for _ in 0..3 {
        until_it_answers(&store).await;
        tokio::join!(
            until_it_answers(&store),
            until_it_answers(&store),
            until_it_answers(&store)
        );
    }
}

async fn cut(backend: Backend) {
    let (store, proxy, _database) = behind_a_proxy(backend).await;
    proxy.set(Fault::Cut);
    let asked = tokio::time::timeout(DEADLINE, store.now())
        .await
        .expect("it ends");

    assert!(
        matches!(asked, Err(StoreError::Unavailable(_))),
        "{asked:?}"
    );
    proxy.heal();
    until_it_answers(&store).await;
}

/// Answers are held back until their questions were given up, and then they come.
async fn late(backend: Backend) {
    let (store, proxy, database) = behind_a_proxy(backend).await;
    let nodes = [1, 2, 3].map(|n| NodeId(uuid::Uuid::from_u128(n)));

    // By another way, for nothing is in doubt about it.
    let direct = SqlStore::connect(&database.url, StoreOptions::default())
        .await
        .unwrap();
    for node in nodes {
        direct.register_node(node, "n", "h", None).await.unwrap();
    }

    for _ in 0..3 {
        // So long that a connection is asked whether it still lives before it is used.
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        proxy.set(Fault::OneWay {
            blocked: Way::ToClient,
        });
        let asked = tokio::join!(store.now(), store.now(), store.now());

        assert!(
            asked.0.is_err() && asked.1.is_err() && asked.2.is_err(),
            "{asked:?}"
        );
        proxy.heal();
        until_it_answers(&store).await;

        for _ in 0..10 {
            let take = |job: &'static str, node| store.take_maintenance_lease(job, node, 60_000);
            let taken = tokio::join!(
                take("a", nodes[0]),
                take("b", nodes[1]),
                take("c", nodes[2]),
                store.now()
            );

            let is_own = |taken: &Result<_, StoreError>| {
                matches!(taken, Ok(Some(_)) | Err(StoreError::Unavailable(_)))
            };
            assert!(
                is_own(&taken.0) && is_own(&taken.1) && is_own(&taken.2),
                "{taken:?}"
            );
            assert!(
                matches!(taken.3, Ok(_) | Err(StoreError::Unavailable(_))),
                "{taken:?}"
            );
        }
    }
}

/// A node that is stopped in the middle of a transaction: its connection stays open, and nothing
/// comes any more.
async fn silent(backend: Backend) {
    const LOCK: [&str; 2] = ["BEGIN", "UPDATE maintenance_leases SET epoch = epoch + 1"];
    let database = FreshDatabase::make(backend).await;
    let store = SqlStore::open(&database.url, StoreOptions::default())
        .await
        .unwrap();
    let node = NodeId(uuid::Uuid::from_u128(1));
    store.register_node(node, "n", "h", None).await.unwrap();
    store
        .take_maintenance_lease("rescuer", node, 60_000)
        .await
        .unwrap();
    let mut postgres = None;
    let mut mysql = None;
    match backend {
        Backend::Postgres => {
            let connection = postgres.insert(connect_postgres(&database.url).await.unwrap());
            for statement in LOCK {
                connection.execute(statement).await.unwrap();
            }
        }
        Backend::MySql => {
            let connection = mysql.insert(connect_mysql(&database.url).await.unwrap());
            for statement in LOCK {
                connection.execute(statement).await.unwrap();
            }
        }
        Backend::Sqlite => panic!("a file has no network"),
    }
    let taken = tokio::time::timeout(
        DEADLINE,
        store.take_maintenance_lease("rescuer", node, 60_000),
    )
    .await
    .expect("it ends");
    assert!(taken.is_ok(), "{taken:?}");
    drop((postgres, mysql));
}
