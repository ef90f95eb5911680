//! Clients that never finish their request: the 99th percentile of normal requests with and without
//! them, their memory, and how long the server keeps their sockets open.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::clients::{DEADLINE, resident_kib, start, submit};

/// Normal requests of each round.
const REQUESTS: usize = 2_000;
/// The pause between two normal requests.
const PAUSE: Duration = Duration::from_millis(2);

pub(crate) async fn measure(count: usize) -> Result<()> {
    let (mut server, address, pid, _folder) = start().await?;
    let id = submit(
        address,
        r#"{"taskType":"sample.echo","parameters":1,"delay":"1d"}"#,
    )
    .await?;

    // The first round warms the server up.
    normal_requests(address, &id).await?;
    let alone = normal_requests(address, &id).await?;

    let before = resident_kib(pid)?;
    let started = Instant::now();
    let mut slow = Vec::with_capacity(count);
    for _ in 0..count {
        // In a task of its own, so that it notes the moment at which its socket is closed.
        slow.push(tokio::spawn(until_closed(begin(address).await?)));
    }
    let opened = started.elapsed();
    let beside = normal_requests(address, &id).await?;
    let after = resident_kib(pid)?;

    let mut longest = Duration::ZERO;
    for one in slow {
        longest = longest.max(one.await??);
    }

    let ratio = beside.as_secs_f64() / alone.as_secs_f64();
    println!("{count} connections that never end their head: opened in {opened:.1?}");
    println!(
        "p99 of GET /api/tasks/{{id}}: {alone:.2?} without them, {beside:.2?} beside them: ratio \
         {ratio:.2}"
    );
    println!(
        "resident memory grew by {:.1} MiB",
        after.saturating_sub(before) as f64 / 1_024.0
    );
    println!("the last socket was free after {longest:.1?}");
    server.kill().await?;
    Ok(())
}

/// Begins a request whose head never ends. Returns its start.
async fn begin(address: SocketAddr) -> Result<(TcpStream, Instant)> {
    let mut socket = TcpStream::connect(address).await?;
    socket
        .write_all(format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nX-Slow: ").as_bytes())
        .await?;
    Ok((socket, Instant::now()))
}

/// Sends a byte every second until the server closes the connection. Returns how long that took.
async fn until_closed((mut socket, began): (TcpStream, Instant)) -> Result<Duration> {
    let mut answer = [0; 512];
    while began.elapsed() < DEADLINE {
        match tokio::time::timeout(Duration::from_secs(1), socket.read(&mut answer)).await {
            Ok(Ok(0) | Err(_)) => return Ok(began.elapsed()),
            Ok(Ok(_)) => {}
            Err(_) => drop(socket.write_all(b"x").await),
        }
    }

    anyhow::bail!("a socket is still open after {DEADLINE:?}")
}

/// The 99th percentile of a client's requests over one connection.
async fn normal_requests(address: SocketAddr, id: &str) -> Result<Duration> {
    let mut socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let request = format!("GET /api/tasks/{id} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    let mut times = Vec::with_capacity(REQUESTS);
    for _ in 0..REQUESTS {
        let asked = Instant::now();
        socket.write_all(request.as_bytes()).await?;
        answer(&mut socket).await?;
        times.push(asked.elapsed());
        tokio::time::sleep(PAUSE).await;
    }

    times.sort_unstable();
    times
        .get(times.len() * 99 / 100)
        .copied()
        .context("no request was sent")
}

async fn answer(socket: &mut TcpStream) -> Result<()> {
    let mut seen = Vec::with_capacity(4_096);
    loop {
        ensure!(
            socket.read_buf(&mut seen).await? > 0,
            "the server closed a normal connection"
        );
        let Some(end) = seen.windows(4).position(|part| part == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&seen[..end]).to_lowercase();

        ensure!(
            head.starts_with("http/1.1 200"),
            "a normal request was refused: {head}"
        );
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .context("no length")?;
        if seen.len() >= end + 4 + length.parse::<usize>()? {
            return Ok(());
        }
    }
}
