//! A namespace for one case, on the server that the environment names.

use std::ops::Deref;
use std::sync::Arc;

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
        let options = RabbitOptions { namespace: self.name.clone(), lanes };
        RabbitBroker::connect(&self.url, options).unwrap()
    }
}

pub(crate) async fn until_up(broker: &dyn Broker) {
    let mut state = broker.state();
    while state != BrokerState::Up {
        let after = tokio::time::timeout(std::time::Duration::from_secs(60), broker.state_after(&state)).await;
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
        let after = tokio::time::timeout(std::time::Duration::from_secs(60), broker.state_after(&state)).await;
        state = after.unwrap_or_else(|_| panic!("the broker is still up"));
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place of these tests that reads the environment")]
pub(crate) fn server_url() -> String {
    std::env::var("LONGHAUL_TEST_RABBITMQ").unwrap_or_else(|_| {
        panic!("LONGHAUL_TEST_RABBITMQ names no RabbitMQ server: `scripts/services run cargo test` starts one")
    })
}
