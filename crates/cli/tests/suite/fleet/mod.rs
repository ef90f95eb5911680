//! The program as a fleet: API, worker and maintenance nodes as separate processes, on
//! PostgreSQL, RabbitMQ and Redis.

mod degraded;
mod long_tasks;
mod secure;
mod set_up;
mod together;

use std::time::Duration;

use libtest_mimic::Trial;
use longhaul_testkit::rabbit_namespace::RabbitNamespace;
use tokio::process::Command;

use crate::database::{Backend, Database};
use crate::program::process::{Answer, Process, answer};
use crate::server::setting;

pub(crate) fn trials() -> Vec<Trial> {
    [
        together::trials(),
        degraded::trials(),
        set_up::trials(),
        secure::trials(),
        long_tasks::trials(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The task queues that a node declares.
const QUEUES: [&str; 4] = [
    "enterprise_exclusive",
    "vip_short",
    "vip_long",
    "free_default",
];

/// The servers that the nodes of one fleet share.
pub(crate) struct Fleet {
    pub(crate) database: Database,
    pub(crate) namespace: RabbitNamespace,
    redis: String,
}

impl Fleet {
    pub(crate) async fn make() -> Self {
        Self::behind(&server("LONGHAUL_TEST_RABBITMQ")).await
    }

    /// A fleet on the broker with this URL.
    pub(crate) async fn behind(broker: &str) -> Self {
        let database = Database::make(Backend::Postgres).await;
        let namespace = RabbitNamespace::new(broker, &QUEUES);
        Self {
            database,
            namespace,
            redis: server("LONGHAUL_TEST_REDIS"),
        }
    }

    pub(crate) fn program(&self, arguments: &[&str]) -> Command {
        let mut command = self.database.program(arguments);
        let RabbitNamespace { name, url, .. } = &self.namespace;
        command
            .env("LONGHAUL_BROKER", url)
            .env("LONGHAUL_BROKER__NAMESPACE", name);
        command
            .env("LONGHAUL_REDIS", &self.redis)
            .env("LONGHAUL_REDIS__NAMESPACE", name);

        // The pipe of the log is not read while a node runs: it must not fill up.
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
        self.start(&["worker", "--samples", "--queues", "free_default=4"])
            .await
    }

    pub(crate) async fn maintenance(&self) -> Process {
        self.start(&["serve", "--roles", "maintenance"]).await
    }
}

pub(crate) fn server(variable: &str) -> String {
    setting(variable).unwrap_or_else(|| {
        panic!(
            "{variable} is not set: run `make test`, or `make services` and `. target/services.env`"
        )
    })
}

/// Waits until the condition is true.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let is_true = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };

    tokio::time::timeout(crate::program::process::DEADLINE, is_true)
        .await
        .unwrap_or_else(|_| panic!("{what}: not in time"));
}
