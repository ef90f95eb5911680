//! A namespace for one case, on the server that the environment names.

use std::sync::Arc;

use lapin::{
    Connection, ConnectionProperties,
    options::{ExchangeDeleteOptions, QueueDeleteOptions},
};
use longhaul_domain::contract::{Broker, broker::BrokerState};
use longhaul_transport::rabbitmq::{LaneKind, RabbitBroker, RabbitOptions};

use crate::fresh::random_id;

/// Every queue of tasks that a case uses: they are removed after it.
const LANES: [&str; 13] =
    ["vip_short", "free_default", "another", "empty", "nowhere", "a", "a.b", "a.b.c", "a/b", "a-b", "b", "B", "a:b"];
const OTHERS: [&str; 2] = ["dlq", "progress"];
const EXCHANGES: [&str; 7] =
    ["exchange", "retry.exchange", "requeue.exchange", "dlx", "events.exchange", "control", "news"];

/// What is in it goes when it is dropped.
#[derive(Debug)]
pub(crate) struct Namespace {
    pub(crate) name: String,
    url: String,
}

impl Namespace {
    pub(crate) fn new() -> Self {
        Self::at(&server_url())
    }

    pub(crate) fn at(url: &str) -> Self {
        Self { name: format!("longhaul_test_{}", random_id().simple()), url: url.to_owned() }
    }

    /// A namespace of that name on the server of all tests.
    pub(crate) fn named(name: &str) -> Self {
        Self { name: name.to_owned(), url: server_url() }
    }

    pub(crate) fn full(&self, name: &str) -> String {
        format!("{}.tasks.{name}", self.name)
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

    pub(crate) async fn connection(&self) -> Connection {
        Connection::connect(&self.url, ConnectionProperties::default()).await.unwrap()
    }

    async fn remove(&self) {
        let connection = self.connection().await;
        let channel = connection.create_channel().await.unwrap();
        let rungs = (0..14).map(|step| format!("wait.{}", 250_u64 << step));
        for queue in LANES.iter().chain(&OTHERS).map(|name| (*name).to_owned()).chain(rungs) {
            channel.queue_delete(self.full(&queue).into(), QueueDeleteOptions::default()).await.unwrap();
        }
        for exchange in EXCHANGES {
            channel.exchange_delete(self.full(exchange).into(), ExchangeDeleteOptions::default()).await.unwrap();
        }
        connection.close(200, "bye".into()).await.unwrap();
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let remove = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(self.remove());
        };
        // A runtime cannot be entered from within another, and a case may have failed by its server's fault.
        let _ = std::thread::scope(|scope| scope.spawn(remove).join());
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
