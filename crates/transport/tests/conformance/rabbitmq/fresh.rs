//! A namespace for one case, on the server that the environment names.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::contract::{Broker, broker::BrokerState};
use longhaul_testkit::rabbit_namespace::RabbitNamespace;
use longhaul_transport::rabbitmq::{LaneKind, RabbitBroker, RabbitOptions};

/// Every queue of tasks that a case uses: they are removed after it.
const LANES: [&str; 15] = [
    "vip_short",
    "free_default",
    "another",
    "empty",
    "nowhere",
    "a",
    "a.b",
    "a.b.c",
    "a/b",
    "a-b",
    "b",
    "B",
    "a:b",
    "250",
    "wait",
];

/// On a busy machine a server may take seconds to answer. That is no failure, but in the cases that are about it.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is in it goes when it is dropped.
#[derive(Debug)]
pub(crate) struct Namespace(RabbitNamespace);

impl Deref for Namespace {
    type Target = RabbitNamespace;

    fn deref(&self) -> &RabbitNamespace {
        &self.0
    }
}

impl Namespace {
    pub(crate) fn new() -> Self {
        Self::at(&server_url())
    }

    pub(crate) fn at(url: &str) -> Self {
        Self(RabbitNamespace::new(url, &LANES))
    }

    /// A namespace of that name on the server of all tests.
    pub(crate) fn named(name: &str) -> Self {
        Self(RabbitNamespace::named(name, &server_url(), &LANES))
    }

    /// A broker in this namespace, as soon as it is up.
    pub(crate) async fn broker(&self, lanes: LaneKind) -> Arc<RabbitBroker> {
        let broker = self.connecting(lanes);
        until_up(&*broker).await;
        broker
    }

    pub(crate) fn connecting(&self, lanes: LaneKind) -> Arc<RabbitBroker> {
        RabbitBroker::connect_patiently(&self.url, self.options(lanes), PATIENCE).unwrap()
    }

    /// As [`Self::broker`], and as soon as a node does it takes a silent server for dead.
    pub(crate) async fn hasty_broker(&self, lanes: LaneKind) -> Arc<RabbitBroker> {
        let broker = RabbitBroker::connect(&self.url, self.options(lanes)).unwrap();
        until_up(&*broker).await;
        broker
    }

    fn options(&self, lanes: LaneKind) -> RabbitOptions {
        RabbitOptions {
            namespace: self.name.clone(),
            lanes,
        }
    }
}

pub(crate) async fn until_up(broker: &dyn Broker) {
    let mut state = broker.state();
    while state != BrokerState::Up {
        let after = tokio::time::timeout(Duration::from_secs(60), broker.state_after(&state)).await;
        state = after.unwrap_or_else(|_| panic!("the broker is still not up: {state:?}"));
    }
}

/// Waits until the broker is known to be away, and says why.
pub(crate) async fn until_down(broker: &dyn Broker) -> String {
    let mut state = broker.state();
    loop {
        if let BrokerState::Down(why) = state {
            return why;
        }
        let after = tokio::time::timeout(Duration::from_secs(60), broker.state_after(&state)).await;
        state = after.unwrap_or_else(|_| panic!("the broker is still up"));
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place of these tests that reads the environment"
)]
pub(crate) fn server_url() -> String {
    std::env::var("LONGHAUL_TEST_RABBITMQ").unwrap_or_else(|_| {
        panic!("LONGHAUL_TEST_RABBITMQ names no RabbitMQ server: `scripts/services run cargo test` starts one")
    })
}
