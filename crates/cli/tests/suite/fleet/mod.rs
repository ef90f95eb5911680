//! The program as a fleet: API, worker and duty nodes as processes of their own, on PostgreSQL, RabbitMQ and Redis.

mod degraded;
mod patience;
mod secure;
mod set_up;
mod together;

use std::time::Duration;

use lapin::{
    Connection, ConnectionProperties,
    options::{ExchangeDeleteOptions, QueueDeleteOptions},
};
use libtest_mimic::Trial;
use tokio::process::Command;

use crate::database::{Backend, Database};
use crate::http::server::setting;
use crate::program::process::{Answer, Process, answer};

pub(crate) fn trials() -> Vec<Trial> {
    [together::trials(), degraded::trials(), set_up::trials(), secure::trials(), patience::trials()]
        .into_iter()
        .flatten()
        .collect()
}

/// Queues and exchanges that a node declares; they are removed in the end.
const QUEUES: [&str; 6] = ["enterprise_exclusive", "vip_short", "vip_long", "free_default", "dlq", "progress"];
const EXCHANGES: [&str; 7] =
    ["exchange", "retry.exchange", "requeue.exchange", "dlx", "events.exchange", "control", "news"];
/// Steps of the ladder of waits, each twice as long as the one before.
const RUNGS: u32 = 14;

/// What the nodes of one fleet share.
pub(crate) struct Fleet {
    pub(crate) database: Database,
    pub(crate) namespace: String,
    broker: String,
    redis: String,
}

impl Fleet {
    pub(crate) async fn make() -> Self {
        Self::behind(&server("LONGHAUL_TEST_RABBITMQ")).await
    }

    /// On a broker that is reached this way.
    pub(crate) async fn behind(broker: &str) -> Self {
        let database = Database::make(Backend::Postgres).await;
        let unique = database.folder.path().file_name().unwrap().to_string_lossy().to_lowercase();
        let letters: String = unique.chars().filter(char::is_ascii_alphanumeric).collect();
        let namespace = format!("fleet_{}_{letters}", std::process::id());
        Self { database, namespace, broker: broker.to_owned(), redis: server("LONGHAUL_TEST_REDIS") }
    }

    pub(crate) fn program(&self, arguments: &[&str]) -> Command {
        let mut command = self.database.program(arguments);
        command.env("LONGHAUL_BROKER", &self.broker).env("LONGHAUL_BROKER__NAMESPACE", &self.namespace);
        command.env("LONGHAUL_REDIS", &self.redis).env("LONGHAUL_REDIS__NAMESPACE", &self.namespace);
        // Nobody reads the log while a node runs.
        command.env("LONGHAUL_LOG__LEVEL", "error");
        command
    }

    pub(crate) async fn run(&self, arguments: &[&str]) -> Answer {
        answer(self.program(arguments)).await
    }

    pub(crate) async fn start(&self, arguments: &[&str]) -> Process {
        Process::start(self.program(arguments)).await
    }

    pub(crate) async fn api(&self) -> Process {
        self.start(&["serve", "--roles", "api", "--samples"]).await
    }

    pub(crate) async fn worker(&self) -> Process {
        self.start(&["worker", "--samples", "--queues", "free_default=4"]).await
    }

    pub(crate) async fn duties(&self) -> Process {
        self.start(&["serve", "--roles", "duties"]).await
    }

    pub(crate) fn name(&self, name: &str) -> String {
        format!("{}.tasks.{name}", self.namespace)
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let names =
            QUEUES.map(str::to_owned).into_iter().chain((0..RUNGS).map(|step| format!("wait.{}", 250_u64 << step)));
        let queues: Vec<String> = names.map(|name| self.name(&name)).collect();
        let exchanges = EXCHANGES.map(|name| self.name(name));
        // A drop can come inside a runtime, where nothing may block on another: a thread of its own may.
        let removed = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let channel = connect().await.create_channel().await.unwrap();
                for name in queues {
                    channel.queue_delete(name.as_str().into(), QueueDeleteOptions::default()).await.unwrap();
                }
                for name in exchanges {
                    channel.exchange_delete(name.as_str().into(), ExchangeDeleteOptions::default()).await.unwrap();
                }
            });
        });
        let _ = removed.join();
    }
}

/// Somebody else on the same broker.
pub(crate) async fn connect() -> Connection {
    let url = server("LONGHAUL_TEST_RABBITMQ");
    Connection::connect(&url, ConnectionProperties::default()).await.expect("RabbitMQ answers")
}

pub(crate) fn server(variable: &str) -> String {
    setting(variable).unwrap_or_else(|| {
        panic!("{variable} is not set: run `make test`, or `make services` and `. target/services.env`")
    })
}

/// Waits until it is so.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let so = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(crate::program::process::DEADLINE, so).await.unwrap_or_else(|_| panic!("{what}: not in time"));
}
