//! Longhaul as its users have it, on every database and as a fleet, in one program.
//!
//! Names start with the place: `cargo test -p longhaul --features fleet,mysql,postgres,testing
//! --test suite -- postgres::cancel` runs a part, and `fleet::` is PostgreSQL with RabbitMQ and
//! Redis. The examples bring their own database.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests; a failure stops the test"
)]

mod cancel;
mod ends;
mod examples;
mod fair_order;
#[expect(
    dead_code,
    reason = "shared with the tests of the store, which use more of it"
)]
#[path = "../../../store/tests/conformance/fresh.rs"]
mod fresh;
mod limits;
mod operators;
mod parents;
mod shutdowns_and_crashes;
mod submits;

use std::future::Future;
use std::ops::Deref;
use std::time::Duration;

use fresh::{Backend, FreshDatabase};
use libtest_mimic::Trial;
use longhaul::{Builder, Longhaul, RabbitOptions, RetryPolicy, TypeSettings};
use longhaul_store::{SqlStore, StoreOptions};
use longhaul_testkit::{rabbit_namespace::RabbitNamespace, suite};

/// Far more than any case takes.
const DEADLINE: Duration = Duration::from_secs(180);
/// The queues of tasks that the cases use.
const QUEUES: [&str; 5] = [
    "enterprise_exclusive",
    "vip_short",
    "vip_long",
    "free_default",
    "bulk",
];

fn main() {
    let arguments = suite::arguments();
    let places = Backend::ALL
        .map(Place::Alone)
        .into_iter()
        .chain([Place::Fleet]);

    let trials: Vec<Trial> = places
        .flat_map(|place| {
            [
                submits::trials(place),
                ends::trials(place),
                cancel::trials(place),
                parents::trials(place),
                operators::trials(place),
                limits::trials(place),
                shutdowns_and_crashes::trials(place),
                fair_order::trials(place),
            ]
        })
        .flatten()
        .chain(examples::trials())
        .collect();

    libtest_mimic::run(&arguments, trials).exit();
}

/// What Longhaul runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A database and nothing else.
    Alone(Backend),
    /// PostgreSQL, with RabbitMQ and Redis.
    Fleet,
}

impl Place {
    const fn name(self) -> &'static str {
        match self {
            Self::Alone(backend) => backend.name(),
            Self::Fleet => "fleet",
        }
    }
}

/// A fresh database, and in a fleet a fresh namespace.
struct Home {
    database: FreshDatabase,
    fleet: Option<(RabbitNamespace, String)>,
}

impl Home {
    async fn make(place: Place) -> Self {
        match place {
            Place::Alone(backend) => Self {
                database: FreshDatabase::make(backend).await,
                fleet: None,
            },
            Place::Fleet => {
                let namespace = RabbitNamespace::new(&server("LONGHAUL_TEST_RABBITMQ"), &QUEUES);
                let fleet = Some((namespace, server("LONGHAUL_TEST_REDIS")));
                Self {
                    database: FreshDatabase::make(Backend::Postgres).await,
                    fleet,
                }
            }
        }
    }
}

impl Deref for Home {
    type Target = FreshDatabase;

    fn deref(&self) -> &FreshDatabase {
        &self.database
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the servers that the tests are given"
)]
fn server(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set: run `make test`"))
}

/// One case on its own runtime, in a fresh home.
fn trial<F: Future<Output = ()>>(
    place: Place,
    name: &str,
    case: impl FnOnce(Home) -> F + Send + 'static,
) -> Trial {
    Trial::test(format!("{}::{name}", place.name()), move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let case = async move { case(Home::make(place).await).await };

        runtime
            .block_on(async { tokio::time::timeout(DEADLINE, case).await })
            .map_err(|_| "it did not end in time")?;
        Ok(())
    })
}

async fn open(home: &Home) -> Builder {
    with_servers(home, Longhaul::open(&home.url).await.unwrap())
}

/// Opens the store, too, for a test that claims as a node which the process does not know.
async fn open_with_store(home: &Home) -> (Builder, SqlStore) {
    let store = SqlStore::open(&home.url, StoreOptions::default())
        .await
        .unwrap();
    let builder = Longhaul::on(store.clone()).await.unwrap();

    (with_servers(home, builder), store)
}

fn with_servers(home: &Home, builder: Builder) -> Builder {
    match &home.fleet {
        None => builder,
        Some((namespace, redis)) => {
            let options = RabbitOptions {
                namespace: namespace.name.clone(),
                ..RabbitOptions::default()
            };
            builder
                .rabbitmq(&namespace.url, options)
                .redis(redis, &namespace.name)
        }
    }
}

/// Waits until the condition holds. It is checked only every few milliseconds, because the servers
/// serve the other cases, too.
async fn until<F: Future<Output = bool>>(mut holds: impl FnMut() -> F) {
    while !holds().await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Retries at once, so that no test waits.
fn quick() -> TypeSettings {
    TypeSettings::new().retry(RetryPolicy {
        initial_ms: 1,
        factor: 1.0,
        jitter: 0.0,
        max_ms: 1,
    })
}
