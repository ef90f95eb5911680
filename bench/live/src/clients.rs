//! Idle live clients.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// The longest wait for a stream's first event.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);
/// Connections that are opened at once. The listener's backlog is bounded.
const AT_ONCE: usize = 100;

/// Opens `count` streams of `path`, by default of the first task, and prints their cost.
pub(crate) async fn measure(count: usize, path: Option<String>) -> Result<()> {
    let (mut server, address, pid, _folder) = start().await?;
    let id = submit(
        address,
        r#"{"taskType":"sample.echo","parameters":1,"delay":"1d"}"#,
    )
    .await?;
    let path = path.unwrap_or_else(|| format!("/api/tasks/{id}/events"));

    // The first clients make the server allocate what it needs once.
    let first = open_all(address, &path, AT_ONCE).await?;
    let before = resident_kib(pid)?;
    let started = Instant::now();
    let streams = open_all(address, &path, count).await?;
    let opened = started.elapsed();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let after = resident_kib(pid)?;

    let each = (after.saturating_sub(before)) as f64 / count as f64;
    println!("{count} idle clients of {path}: opened in {opened:.1?}");
    println!("resident memory {before} KiB before, {after} KiB with them: {each:.1} KiB each");

    let mut delays = progress_delays(address).await?;
    delays.sort_unstable();
    let at = |share: usize| {
        delays
            .get((delays.len().saturating_sub(1)) * share / 100)
            .copied()
            .unwrap_or_default()
    };
    println!(
        "delay of a progress report at a client beyond the 20 ms between reports: \
         median {:.1?}, p99 {:.1?}",
        at(50),
        at(99)
    );
    drop((first, streams));
    server.kill().await?;
    Ok(())
}

/// Starts a server process. Returns the process, its address and id, and its temporary folder.
pub(crate) async fn start() -> Result<(Child, SocketAddr, u32, tempfile::TempDir)> {
    let folder = tempfile::tempdir()?;
    let mut server = Command::new(std::env::current_exe()?)
        .args(["serve".as_ref(), folder.path().as_os_str()])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let address = address_of(&mut server).await?;
    let pid = server.id().context("the server has ended")?;
    Ok((server, address, pid, folder))
}

async fn address_of(server: &mut Child) -> Result<SocketAddr> {
    let stdout = server.stdout.take().context("no output")?;
    let line = BufReader::new(stdout).lines().next_line().await?;
    Ok(line.context("the server did not start")?.parse()?)
}

pub(crate) fn resident_kib(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let mut lines = status.lines();
    let size = lines.find_map(|line| line.strip_prefix("VmRSS:"));
    let number = size.context("no VmRSS")?.split_whitespace().next();
    Ok(number.context("no number")?.parse()?)
}

pub(crate) async fn submit(address: SocketAddr, body: &str) -> Result<String> {
    let mut socket = TcpStream::connect(address).await?;
    let head = format!(
        "POST /api/tasks HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );

    socket.write_all(head.as_bytes()).await?;
    let mut text = String::new();
    socket.read_to_string(&mut text).await?;
    let body = text.split_once("\r\n\r\n").context("no answer")?.1;
    let answer: serde_json::Value = serde_json::from_str(body)?;
    Ok(answer["taskId"]
        .as_str()
        .with_context(|| format!("no task: {body}"))?
        .to_owned())
}

async fn open_all(address: SocketAddr, path: &str, count: usize) -> Result<Vec<TcpStream>> {
    let mut streams = Vec::with_capacity(count);
    while streams.len() < count {
        let batch = AT_ONCE.min(count - streams.len());
        let opening: Vec<_> = (0..batch)
            // Together: one after the other would take minutes.
            .map(|_| tokio::spawn(open(address, path.to_owned())))
            .collect();
        for one in opening {
            streams.push(one.await??);
        }
    }

    Ok(streams)
}

/// Opens a stream and waits for its first event.
async fn open(address: SocketAddr, path: String) -> Result<TcpStream> {
    let mut socket = TcpStream::connect(address).await?;
    socket
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes())
        .await?;
    let mut seen = Vec::new();

    let shown = async {
        while !seen.windows(12).any(|part| part == b"event: state") {
            if socket.read_buf(&mut seen).await? == 0 {
                bail!("a stream ended early: {}", String::from_utf8_lossy(&seen));
            }
        }
        Ok(())
    };

    tokio::time::timeout(DEADLINE, shown).await??;
    Ok(socket)
}

/// The delays of a sample's progress reports while all other clients are connected.
async fn progress_delays(address: SocketAddr) -> Result<Vec<Duration>> {
    let step = Duration::from_millis(20);
    let body =
        r#"{"taskType":"sample.progress","parameters":{"steps":200,"stepMs":20},"delay":"1s"}"#;
    let id = submit(address, body).await?;
    let mut socket = open(address, format!("/api/tasks/{id}/events")).await?;
    let mut seen = Vec::new();
    let mut last = None::<Instant>;
    let mut delays = Vec::new();

    while !seen.windows(16).any(|part| part == b"event: completed") {
        seen.drain(..seen.len().saturating_sub(2_000));
        let at = seen.len();
        if socket.read_buf(&mut seen).await? == 0 {
            bail!("the stream ended early");
        }
        let now = Instant::now();
        if seen[at..]
            .windows(15)
            .any(|part| part == b"event: progress")
        {
            delays.extend(last.map(|last| now.duration_since(last).saturating_sub(step)));
            last = Some(now);
        }
    }

    Ok(delays)
}
