//! An HTTP client without a library: requests and responses are text on a socket.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// Longer than any response takes.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HashMap<String, String>,
    pub(crate) text: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body of a response that must have this status.
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        if self.text.is_empty() {
            Value::Null
        } else {
            self.json()
        }
    }

    /// The problem document, which must have this status and code.
    #[track_caller]
    pub(crate) fn problem(self, status: u16, code: &str) -> Value {
        assert_eq!(
            self.headers["content-type"], "application/problem+json",
            "{}",
            self.text
        );

        let problem = self.expect(status);
        assert_eq!(
            (&problem["code"], &problem["status"]),
            (&code.into(), &status.into()),
            "{problem}"
        );
        assert!(
            problem["title"].is_string()
                && problem["detail"].is_string()
                && problem["type"].is_string()
        );

        problem
    }
}

impl Call {
    pub(crate) fn new(method: &'static str, path: impl Into<String>) -> Self {
        Self {
            method,
            path: path.into(),
            headers: Vec::new(),
            body: None,
        }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path)
    }

    pub(crate) fn post(path: impl Into<String>, body: &Value) -> Self {
        Self::new("POST", path).json(body)
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn user(self, user: &str) -> Self {
        self.header("X-User-Id", user)
    }

    pub(crate) fn json(self, body: &Value) -> Self {
        self.text(&body.to_string())
    }

    pub(crate) fn text(mut self, body: &str) -> Self {
        self.body = Some(body.to_owned());
        self.header("Content-Type", "application/json")
    }

    fn head(&self, address: SocketAddr) -> String {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.path);
        if !self.headers.iter().any(|(name, _)| name == "Host") {
            head += &format!("Host: {address}\r\n");
        }

        for (name, value) in &self.headers {
            head += &format!("{name}: {value}\r\n");
        }

        head
    }

    pub(crate) async fn send(&self, address: SocketAddr) -> Reply {
        tokio::time::timeout(DEADLINE, self.send_and_wait(address))
            .await
            .expect("an answer in time")
    }

    async fn send_and_wait(&self, address: SocketAddr) -> Reply {
        let mut socket = TcpStream::connect(address).await.unwrap();
        let body = self.body.clone().unwrap_or_default();
        let head = self.head(address)
            + &format!(
                "Connection: close\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );

        socket.write_all(head.as_bytes()).await.unwrap();
        // A server that refuses a body need not read it.
        let _ = socket.write_all(body.as_bytes()).await;
        let mut bytes = Vec::new();
        let _ = socket.read_to_end(&mut bytes).await;

        read_reply(&String::from_utf8(bytes).unwrap())
    }

    /// Opens a live stream. The head of the answer has been read.
    pub(crate) async fn follow(&self, address: SocketAddr) -> Events {
        let mut socket = TcpStream::connect(address).await.unwrap();
        socket
            .write_all((self.head(address) + "\r\n").as_bytes())
            .await
            .unwrap();
        let mut events = Events {
            reader: BufReader::new(socket),
            pending: String::new(),
        };

        let status = events.line().await.unwrap();
        assert!(status.contains("200"), "{status}");
        let mut kind = String::new();
        while let Some(line) = events.line().await.filter(|line| !line.is_empty()) {
            kind += &line.to_lowercase();
        }

        assert!(kind.contains("text/event-stream"), "{kind}");
        events
    }
}

/// Reads a path until the value satisfies the condition, again after each event of a live stream.
pub(crate) async fn read_until(
    address: SocketAddr,
    signed: impl Fn(Call) -> Call,
    (stream, path): (&str, &str),
    condition: impl Fn(&Value) -> bool,
) -> Value {
    // The stream is open before the first read, so that no change falls between them.
    let mut events = signed(Call::get(stream)).follow(address).await;
    loop {
        let found = signed(Call::get(path)).send(address).await.expect(200);
        if condition(&found) {
            return found;
        }

        assert!(
            events.next().await.is_some(),
            "the stream ended before {path} had the expected value: {found}"
        );
    }
}

pub(crate) fn read_reply(text: &str) -> Reply {
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no answer: {text:?}"));
    let mut lines = head.lines();

    let status = lines
        .next()
        .unwrap()
        .split(' ')
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();

    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();

    Reply {
        status,
        headers,
        text: body.to_owned(),
    }
}

/// A live stream of server-sent events.
pub(crate) struct Events {
    reader: BufReader<TcpStream>,
    pending: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) id: Option<String>,
    pub(crate) data: Value,
}

impl Events {
    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read = tokio::time::timeout(DEADLINE, self.reader.read_line(&mut line))
            .await
            .expect("a line in time");
        (read.unwrap() > 0).then(|| line.trim_end_matches(['\r', '\n']).to_owned())
    }

    /// The text of the next event, decoded from HTTP chunks; `None` when the stream has ended.
    pub(crate) async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.pending.split_once("\n\n") {
                let block = block.to_owned();
                let rest = rest.to_owned();
                self.pending = rest;
                return Some(block);
            }

            let size = usize::from_str_radix(&self.line().await?, 16).unwrap();
            if size == 0 {
                return None;
            }

            let mut chunk = vec![0; size + 2];
            self.reader.read_exact(&mut chunk).await.unwrap();
            self.pending += std::str::from_utf8(&chunk[..size]).unwrap();
        }
    }

    /// The next event that has data; `None` when the stream has ended.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            let block = self.block().await?;
            let field = |name: &str| {
                let value = block
                    .lines()
                    .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                value.map(|value| value.trim_start().to_owned())
            };
            if let (Some(name), Some(data)) = (field("event"), field("data")) {
                return Some(Event {
                    name,
                    id: field("id"),
                    data: serde_json::from_str(&data).unwrap(),
                });
            }
        }
    }

    /// Events up to and including the first of this name.
    pub(crate) async fn until(&mut self, name: &str) -> Vec<Event> {
        let mut received = Vec::new();
        loop {
            let event = self
                .next()
                .await
                .unwrap_or_else(|| panic!("the stream ended before {name}: {received:?}"));
            let is_last = event.name == name;

            received.push(event);
            if is_last {
                return received;
            }
        }
    }
}
