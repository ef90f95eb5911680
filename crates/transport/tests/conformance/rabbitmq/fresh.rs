//! A namespace for one case, on the server that the environment names.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::contract::{Broker, broker::BrokerState};
use longhaul_testkit::rabbit_namespace::RabbitNamespace;
use longhaul_transport::rabbitmq::{QueueKind, RabbitBroker, RabbitOptions};

/// All task queues that the cases use. Their hint queues are removed after each case.
const QUEUES: [&str; 15] = [
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

/// A busy machine may take seconds to answer. Only the cases about timeouts use shorter ones.
const DEADLINE: Duration = Duration::from_secs(30);

/// A namespace whose contents are removed when it is dropped.
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
        Self(RabbitNamespace::new(url, &QUEUES))
    }

    /// A namespace of that name on the shared server.
    pub(crate) fn named(name: &str) -> Self {
        Self(RabbitNamespace::named(name, &server_url(), &QUEUES))
    }

    /// A broker in this namespace, once it is up.
    pub(crate) async fn broker(&self, queue_kind: QueueKind) -> Arc<RabbitBroker> {
        let broker = self.connecting(queue_kind);
        until_up(&*broker).await;
        broker
    }

    pub(crate) fn connecting(&self, queue_kind: QueueKind) -> Arc<RabbitBroker> {
        RabbitBroker::connect_with_timeout(&self.url, self.options(queue_kind), DEADLINE).unwrap()
    }

    /// Like [`Self::broker`], with the timeouts of a node for a silent server.
    pub(crate) async fn broker_with_node_timeouts(
        &self,
        queue_kind: QueueKind,
    ) -> Arc<RabbitBroker> {
        let broker = RabbitBroker::connect(&self.url, self.options(queue_kind)).unwrap();
        until_up(&*broker).await;
        broker
    }

    fn options(&self, queue_kind: QueueKind) -> RabbitOptions {
        RabbitOptions {
            namespace: self.name.clone(),
            queue_kind,
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

/// Waits until the broker is down. Returns the reason.
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
    reason = "these tests read the environment only here"
)]
pub(crate) fn server_url() -> String {
    std::env::var("LONGHAUL_TEST_RABBITMQ").unwrap_or_else(|_| {
        panic!(
            "LONGHAUL_TEST_RABBITMQ names no RabbitMQ server: `scripts/services run cargo \
             test` starts one"
        )
    })
}
