//! A private server of the run: a database, RabbitMQ or Redis. `scripts/services` starts it with
//! durable settings.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rand::RngExt as _;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::probe;

/// Crash recovery of a large data directory is the slowest start.
const START_WAIT: Duration = Duration::from_secs(60);
const STOP_WAIT: Duration = Duration::from_secs(30);
/// How long a server may take to answer a probe.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// `scripts/services` removes databases with this prefix.
const DATABASE: &str = "longhaul_test_torture";

/// A kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub(crate) enum Service {
    Postgres,
    Mariadb,
    Rabbitmq,
    Redis,
}

impl Service {
    /// Its name in `scripts/services`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Mariadb => "mariadb",
            Self::Rabbitmq => "rabbitmq",
            Self::Redis => "redis",
        }
    }

    /// Whether it stores tasks.
    pub(crate) const fn is_database(self) -> bool {
        match self {
            Self::Postgres | Self::Mariadb => true,
            Self::Rabbitmq | Self::Redis => false,
        }
    }

    const fn stop_signal(self) -> Signal {
        match self {
            Self::Postgres => Signal::INT,
            Self::Mariadb | Self::Rabbitmq | Self::Redis => Signal::TERM,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) service: Service,
    name: String,
    port: u16,
    /// For a database, the URL of the server's own database.
    url: String,
    process: Option<Child>,
}

impl Server {
    /// Starts an empty server. A database server gets a new database for the run.
    pub(crate) async fn start(service: Service, name: &str) -> anyhow::Result<Self> {
        let port = free_port()?;
        let mut server = Self {
            service,
            name: name.to_owned(),
            port,
            url: String::new(),
            process: None,
        };

        server.reset_data()?;
        server.prepare().await?;
        server.start_again().await?;

        if service.is_database() {
            let force = if service == Service::Postgres {
                "WITH (FORCE)"
            } else {
                ""
            };
            probe::execute(
                service,
                &server.url,
                &format!("DROP DATABASE IF EXISTS {DATABASE} {force}"),
            )
            .await?;
            probe::execute(service, &server.url, &format!("CREATE DATABASE {DATABASE}")).await?;
        }

        Ok(server)
    }

    async fn prepare(&mut self) -> anyhow::Result<()> {
        let mut command = services(&[
            "prepare",
            self.service.name(),
            &self.name,
            &self.port.to_string(),
        ]);

        let prepared = command
            .stderr(Stdio::inherit())
            .output()
            .await
            .context("scripts/services does not run")?;
        if !prepared.status.success() {
            bail!("scripts/services could not prepare {}", self.service.name());
        }

        self.url = String::from_utf8(prepared.stdout)?.trim().to_owned();
        Ok(())
    }

    /// The URL for the run: of its own database, or of the server.
    pub(crate) fn work_url(&self) -> anyhow::Result<String> {
        if !self.service.is_database() {
            return Ok(self.url.clone());
        }
        let (before, _) = self.url.rsplit_once('/').context("a URL with a path")?;
        Ok(format!("{before}/{DATABASE}"))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    /// Starts the process and waits until it answers.
    pub(crate) async fn start_again(&mut self) -> anyhow::Result<()> {
        let name = self.service.name();
        let mut command = services(&["serve", name, &self.name, &self.port.to_string()]);
        let mut process = command.kill_on_drop(true).spawn()?;
        let deadline = Instant::now() + START_WAIT;

        while !self.answers().await {
            if let Some(status) = process.try_wait()? {
                bail!(
                    "{name} ended at its start: {status}; see target/services/own/{}",
                    self.name
                );
            }

            if Instant::now() > deadline {
                bail!("{name} does not answer after {START_WAIT:?}");
            }

            tokio::time::sleep(Duration::from_millis(30)).await;
        }

        self.process = Some(process);
        Ok(())
    }

    async fn answers(&self) -> bool {
        let greeted = probe::ping(self.service, &self.url);
        matches!(tokio::time::timeout(ANSWER_WAIT, greeted).await, Ok(Ok(())))
    }

    /// Kills the server and all its child processes.
    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::KILL)?;
        let Some(mut process) = self.process.take() else {
            return Ok(());
        };
        process.wait().await?;
        Ok(())
    }

    /// Freezes the server and all its child processes.
    pub(crate) fn freeze(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)?;
        // Processes that were started between the first signals get the second one. A frozen parent
        // starts no more.
        self.signal(Signal::STOP)
    }

    /// Thaws the server and waits until it answers.
    pub(crate) async fn thaw(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)?;
        let deadline = Instant::now() + START_WAIT;
        while !self.answers().await {
            if Instant::now() > deadline {
                bail!("{} does not answer after a freeze", self.service.name());
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }

        Ok(())
    }

    /// Deletes the data of a killed server.
    pub(crate) async fn wipe(&mut self) -> anyhow::Result<()> {
        self.reset_data()?;
        self.prepare().await
    }

    /// Makes the next `prepare` create new data. A database server is left as it is: the run has
    /// its own database in it, and a first start is slow.
    fn reset_data(&self) -> anyhow::Result<()> {
        if self.service.is_database() {
            return Ok(());
        }

        let home = repository()
            .join("target/services/own")
            .join(&self.name)
            .join(self.service.name());
        let mark = home.join("initialised");
        match std::fs::remove_file(&mark) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("{} cannot be removed", mark.display()))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Deletes waiting hints, or everything in Redis.
    pub(crate) async fn empty(&self) -> anyhow::Result<()> {
        probe::empty(self.service, &self.url).await
    }

    /// Stops the server in an orderly way.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        let Some(mut process) = self.process.take() else {
            return Ok(());
        };

        let pid = process.id().and_then(|pid| i32::try_from(pid).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            kill_process(pid, self.service.stop_signal())?;
        }

        let stopped = tokio::time::timeout(STOP_WAIT, process.wait()).await;
        stopped.with_context(|| format!("{} does not stop", self.service.name()))??;
        Ok(())
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let Some(pid) = self.process.as_ref().and_then(Child::id) else {
            return Ok(());
        };
        for pid in process_tree(pid).into_iter().filter_map(Pid::from_raw) {
            // The process may have ended.
            let _ = kill_process(pid, signal);
        }

        Ok(())
    }
}

/// A failed run leaves no process behind.
impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.signal(Signal::KILL);
    }
}

fn services(arguments: &[&str]) -> Command {
    let mut command = Command::new(repository().join("scripts/services"));
    command.args(arguments);
    command
}

/// The repository that this program was built from.
pub(crate) fn repository() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package).to_owned()
}

/// A process and all its descendants.
fn process_tree(pid: u32) -> Vec<i32> {
    let listed =
        std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = listed
        .split_whitespace()
        .filter_map(|child| child.parse().ok())
        .flat_map(process_tree);
    i32::try_from(pid).into_iter().chain(children).collect()
}

/// A free port below the kernel's range for outgoing connections, so that no other process takes it
/// while its server is down.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    for _ in 0..100 {
        let port = rand::rng().random_range(20_000..30_000);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }

    bail!("no free port found between 20000 and 29999")
}
