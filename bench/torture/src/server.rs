//! A private database server that this run starts, kills and stops. Its programs and its durable settings are those
//! of `scripts/services`.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rand::RngExt as _;
use rustix::process::{Pid, Signal, kill_process};
use sqlx::{Connection as _, Executor as _};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::conductor::Store;

/// Crash recovery of a large data directory is the slowest start.
const START_WAIT: Duration = Duration::from_secs(60);
const STOP_WAIT: Duration = Duration::from_secs(30);
/// The name says to `scripts/services` that nobody needs it any more.
const DATABASE: &str = "longhaul_test_torture";

#[derive(Debug)]
pub(crate) struct Server {
    store: Store,
    service: &'static str,
    name: String,
    port: u16,
    /// Names the database that belongs to the server itself.
    url: String,
    process: Option<Child>,
}

impl Server {
    /// Starts a server on data of this name, and makes an empty database in it.
    pub(crate) async fn start(store: Store, name: &str) -> anyhow::Result<Self> {
        let service = match store {
            Store::Postgres => "postgres",
            Store::Mysql => "mariadb",
            Store::Sqlite => bail!("SQLite has no server"),
        };
        let port = free_port()?;
        let prepared = services(&["prepare", service, name, &port.to_string()]).stderr(Stdio::inherit()).output();
        let prepared = prepared.await.context("scripts/services does not run")?;
        if !prepared.status.success() {
            bail!("scripts/services could not prepare {service}");
        }
        let url = String::from_utf8(prepared.stdout)?.trim().to_owned();
        let mut server = Self { store, service, name: name.to_owned(), port, url, process: None };
        server.start_again().await?;
        server.make_database().await?;
        Ok(server)
    }

    /// The URL of the database that the run works in.
    pub(crate) fn database_url(&self) -> anyhow::Result<String> {
        let (before, _) = self.url.rsplit_once('/').context("a URL with a path")?;
        Ok(format!("{before}/{DATABASE}"))
    }

    /// Starts the process and waits until it answers.
    pub(crate) async fn start_again(&mut self) -> anyhow::Result<()> {
        let mut command = services(&["serve", self.service, &self.name, &self.port.to_string()]);
        let mut process = command.kill_on_drop(true).spawn()?;
        let deadline = Instant::now() + START_WAIT;
        while self.execute("SELECT 1").await.is_err() {
            if let Some(status) = process.try_wait()? {
                bail!("{} ended at its start: {status}; see target/services/own/{}", self.service, self.name);
            }
            if Instant::now() > deadline {
                bail!("{} does not answer after {START_WAIT:?}", self.service);
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        self.process = Some(process);
        Ok(())
    }

    /// Kills the server and every process that it has started, all at once.
    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        let pid = process.id().context("a server without a process")?;
        let family: Vec<i32> = std::iter::once(i32::try_from(pid)?).chain(children_of(pid)).collect();
        for pid in family.into_iter().filter_map(Pid::from_raw) {
            // One that has ended meanwhile needs no signal.
            let _ = kill_process(pid, Signal::KILL);
        }
        process.wait().await?;
        Ok(())
    }

    /// Stops the server as an operator would.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        let signal = if self.store == Store::Postgres { Signal::INT } else { Signal::TERM };
        if let Some(pid) = process.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?)) {
            kill_process(pid, signal)?;
        }
        tokio::time::timeout(STOP_WAIT, process.wait()).await.context("the server does not stop")??;
        Ok(())
    }

    async fn make_database(&self) -> anyhow::Result<()> {
        let force = if self.store == Store::Postgres { "WITH (FORCE)" } else { "" };
        self.execute(&format!("DROP DATABASE IF EXISTS {DATABASE} {force}")).await?;
        self.execute(&format!("CREATE DATABASE {DATABASE}")).await
    }

    async fn execute(&self, statement: &str) -> anyhow::Result<()> {
        let sql = sqlx::AssertSqlSafe(statement.to_owned());
        match self.store {
            Store::Postgres => sqlx::PgConnection::connect(&self.url).await?.execute(sql).await.map(|_| ())?,
            Store::Mysql => sqlx::MySqlConnection::connect(&self.url).await?.execute(sql).await.map(|_| ())?,
            Store::Sqlite => {}
        }
        Ok(())
    }
}

fn services(arguments: &[&str]) -> Command {
    let mut command = Command::new(repository().join("scripts/services"));
    command.args(arguments);
    command
}

/// The clone that this program was built from.
pub(crate) fn repository() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap_or(package).to_owned()
}

fn children_of(pid: u32) -> Vec<i32> {
    let listed = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    listed.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// Below the range from which the kernel takes the ports of outgoing connections: the server must get it again after
/// each kill.
fn free_port() -> anyhow::Result<u16> {
    for _ in 0..100 {
        let port = rand::rng().random_range(20_000..30_000);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no free port found between 20000 and 29999")
}
