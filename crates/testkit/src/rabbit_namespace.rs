//! A namespace of one test on a RabbitMQ server that others use, too.

use lapin::{
    Connection, ConnectionProperties,
    options::{ExchangeDeleteOptions, QueueDeleteOptions},
};
use rand::RngExt as _;
use uuid::Uuid;

/// What every node declares, besides a queue for each queue of tasks.
const QUEUES: [&str; 2] = ["dlq", "progress"];
const EXCHANGES: [&str; 7] = [
    "exchange",
    "retry.exchange",
    "requeue.exchange",
    "dlx",
    "events.exchange",
    "control",
    "news",
];
/// Steps of the ladder of waits, each twice as long as the one before.
const RUNGS: u32 = 14;

/// What is in it goes when it is dropped.
#[derive(Debug)]
pub struct RabbitNamespace {
    pub name: String,
    pub url: String,
    /// Queues of tasks that are removed in the end.
    lanes: Vec<String>,
}

impl RabbitNamespace {
    /// One with a name of its own.
    pub fn new(url: &str, lanes: &[&str]) -> Self {
        let name = format!(
            "longhaul_test_{}",
            Uuid::from_u128(rand::rng().random()).simple()
        );
        Self::named(&name, url, lanes)
    }

    pub fn named(name: &str, url: &str, lanes: &[&str]) -> Self {
        let lanes = lanes.iter().map(|lane| (*lane).to_owned()).collect();
        Self {
            name: name.to_owned(),
            url: url.to_owned(),
            lanes,
        }
    }

    /// What a queue or exchange is called at the broker.
    pub fn full(&self, name: &str) -> String {
        format!("{}.tasks.{name}", self.name)
    }

    /// Somebody else on the same broker.
    pub async fn connection(&self) -> Connection {
        Connection::connect(&self.url, ConnectionProperties::default())
            .await
            .expect("RabbitMQ answers")
    }

    async fn remove(&self) -> lapin::Result<()> {
        let connection = self.connection().await;
        let channel = connection.create_channel().await?;
        let rungs = (0..RUNGS).map(|step| format!("wait.{}", 250_u64 << step));
        let queues = self
            .lanes
            .iter()
            .cloned()
            .chain(QUEUES.map(str::to_owned))
            .chain(rungs);
        for queue in queues {
            channel
                .queue_delete(self.full(&queue).into(), QueueDeleteOptions::default())
                .await?;
        }
        for exchange in EXCHANGES {
            channel
                .exchange_delete(self.full(exchange).into(), ExchangeDeleteOptions::default())
                .await?;
        }
        connection.close(200, "bye".into()).await
    }
}

impl Drop for RabbitNamespace {
    fn drop(&mut self) {
        let remove = || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(self.remove())
        };
        // A runtime cannot be entered from within another, and a case may have failed by its server's fault.
        let _ = std::thread::scope(|scope| scope.spawn(remove).join());
    }
}
