//! A namespace for one test on a shared RabbitMQ server.

use lapin::{
    Connection, ConnectionProperties,
    options::{ExchangeDeleteOptions, QueueDeleteOptions},
};
use rand::RngExt as _;
use uuid::Uuid;

/// The queues and exchanges that every node declares, besides one queue for each task queue.
const QUEUES: [&str; 2] = ["dlq", "progress"];
const EXCHANGES: [&str; 7] = [
    "exchange",
    "retry.exchange",
    "requeue.exchange",
    "dlx",
    "events.exchange",
    "control",
    "fanout",
];
/// The number of delay queues. Each delays twice as long as the one before.
const DELAY_QUEUES: u32 = 14;

/// Dropping it removes its queues and exchanges.
#[derive(Debug)]
pub struct RabbitNamespace {
    pub name: String,
    pub url: String,
    /// The task queues to remove in the end.
    task_queues: Vec<String>,
}

impl RabbitNamespace {
    /// A namespace with a random name.
    pub fn new(url: &str, task_queues: &[&str]) -> Self {
        let name = format!(
            "longhaul_test_{}",
            Uuid::from_u128(rand::rng().random()).simple()
        );
        Self::named(&name, url, task_queues)
    }

    pub fn named(name: &str, url: &str, task_queues: &[&str]) -> Self {
        let task_queues = task_queues
            .iter()
            .map(|queue| (*queue).to_owned())
            .collect();
        Self {
            name: name.to_owned(),
            url: url.to_owned(),
            task_queues,
        }
    }

    /// The name of a queue or exchange at the broker.
    pub fn full(&self, name: &str) -> String {
        format!("{}.tasks.{name}", self.name)
    }

    /// A new connection to the same broker.
    pub async fn connection(&self) -> Connection {
        Connection::connect(&self.url, ConnectionProperties::default())
            .await
            .expect("RabbitMQ answers")
    }

    async fn remove(&self) -> lapin::Result<()> {
        let connection = self.connection().await;
        let channel = connection.create_channel().await?;

        let mut queues = self.task_queues.clone();
        queues.extend(QUEUES.map(str::to_owned));
        queues.extend((0..DELAY_QUEUES).map(|step| format!("wait.{}", 250_u64 << step)));
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

        // A runtime cannot be entered within another one, so this needs a thread. Errors are
        // ignored, because the server may be down.
        let _ = std::thread::scope(|scope| scope.spawn(remove).join());
    }
}
