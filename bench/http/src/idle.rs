//! What a client costs that listens and hears nothing: the server's memory, in a process of its own, for each of many.

use std::net::SocketAddr;
use std::process::Stdio;

use anyhow::Context as _;
use futures::future::try_join_all;
use longhaul::{Longhaul, server::ListenerSettings};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::{
    client::Client,
    database::Backend,
    report::{Report, Wanted},
    served::{Served, payload},
};

const CLIENTS: usize = 5_000;
/// Connections that are opened at once: the queue of a listener is not endless.
const AT_ONCE: usize = 100;
/// The word by which this program becomes the server that is measured.
pub(crate) const SERVER: &str = "idle-server";

pub(crate) async fn measure(backend: Backend, report: &mut Report) -> anyhow::Result<()> {
    raise_file_limit()?;
    let database = backend.fresh().await?;
    let mut server = Command::new(std::env::current_exe()?)
        .args([SERVER, &database.url])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let address = address_of(&mut server).await?;
    let pid = server.id().context("the server has ended")?;
    let body = json!({"taskType": "noop", "parameters": payload(0), "delay": "1d"}).to_string();
    let answer: Value = serde_json::from_str(&Client::connect(address).await?.submit(&body).await?)?;
    let path = format!("/api/tasks/{}/events", answer["taskId"].as_str().context("no task")?);
    // What a server needs once is not the clients'.
    let first = listen(address, &path, AT_ONCE).await?;
    let before = resident_kib(pid)?;
    let clients = listen(address, &path, CLIENTS).await?;
    let after = resident_kib(pid)?;
    let each = after.saturating_sub(before) as f64 / CLIENTS as f64;
    let shown = format!("{each:.1} ({CLIENTS} clients, {:.0} MiB in all)", after as f64 / 1024.0);
    report.add(backend.name(), "memory of an idle SSE client, KiB", each, &shown, Wanted::AtMost(20.0));
    drop((first, clients));
    server.kill().await?;
    Ok(())
}

/// The server: prints its address and runs until it is killed.
pub(crate) async fn serve(url: &str) -> anyhow::Result<()> {
    raise_file_limit()?;
    let settings =
        ListenerSettings { connections: 100_000, connections_per_address: 100_000, ..ListenerSettings::default() };
    let served = Served::idle(Longhaul::open(url).await?, settings).await?;
    println!("{}", served.address);
    std::future::pending().await
}

async fn listen(address: SocketAddr, path: &str, count: usize) -> anyhow::Result<Vec<Client>> {
    let mut clients = Vec::with_capacity(count);
    while clients.len() < count {
        let batch = AT_ONCE.min(count - clients.len());
        clients.extend(try_join_all((0..batch).map(|_| shown(address, path))).await?);
    }
    Ok(clients)
}

/// A client that has been shown the current state.
async fn shown(address: SocketAddr, path: &str) -> anyhow::Result<Client> {
    let mut client = Client::connect(address).await?;
    client.follow(path).await?;
    while client.line().await? != "event: state" {}
    Ok(client)
}

async fn address_of(server: &mut Child) -> anyhow::Result<SocketAddr> {
    let mut lines = BufReader::new(server.stdout.take().context("the server has no output")?).lines();
    Ok(lines.next_line().await?.context("the server did not start")?.parse()?)
}

fn resident_kib(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.split_whitespace().next().context("no number")?.parse()?)
}

/// Each client is an open file on both sides.
fn raise_file_limit() -> anyhow::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most }).context("the limit of open files")
}
