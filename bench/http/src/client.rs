//! An HTTP client that sends its requests over one connection, one after the other.

use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

#[derive(Debug)]
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    address: SocketAddr,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream: BufReader::new(stream),
            address,
        })
    }

    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<String> {
        self.send(&format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n",
            self.address
        ))
        .await?;
        self.answer(200).await
    }

    pub(crate) async fn submit(&mut self, body: &str) -> anyhow::Result<String> {
        let address = self.address;
        let length = body.len();
        let head = "POST /api/tasks HTTP/1.1\r\nContent-Type: application/json\r\n";
        self.send(&format!(
            "{head}Host: {address}\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
        .await?;
        self.answer(202).await
    }

    async fn send(&mut self, request: &str) -> anyhow::Result<()> {
        Ok(self.stream.get_mut().write_all(request.as_bytes()).await?)
    }

    async fn answer(&mut self, status: u16) -> anyhow::Result<String> {
        let length = self
            .head(status)
            .await?
            .context("the answer has no length")?;
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await?;
        Ok(String::from_utf8(body)?)
    }

    /// Reads the head of a response, which must have this status. Returns the length of the body.
    async fn head(&mut self, status: u16) -> anyhow::Result<Option<usize>> {
        let first = self.line().await?;
        ensure!(
            first.split(' ').nth(1) == Some(&status.to_string()),
            "wanted {status}, got {first}"
        );

        let mut length = None;
        loop {
            let line = self.line().await?.to_ascii_lowercase();
            if line.is_empty() {
                return Ok(length);
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = Some(value.trim().parse()?);
            }
        }
    }

    /// Starts a stream of events. [`Self::line`] then reads it line by line.
    pub(crate) async fn follow(&mut self, path: &str) -> anyhow::Result<()> {
        self.send(&format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n",
            self.address
        ))
        .await?;
        self.head(200).await.map(drop)
    }

    pub(crate) async fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        ensure!(
            self.stream.read_line(&mut line).await? > 0,
            "the server closed the connection"
        );
        Ok(line.trim_end().to_owned())
    }
}
