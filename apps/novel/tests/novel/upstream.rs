//! A small server with OpenAI's protocol, which can fail in the ways that providers do.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use longhaul_novel::provider::{OpenAi, OpenAiSettings, Provider};

/// The answer to one request.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// This text and its cost.
    Text(&'static str),
    /// A status with these headers and this body.
    Status(u16, &'static str, String),
    /// The beginning of an answer, after which the connection breaks.
    Cut(&'static str),
    /// The beginning of an answer, after which the server is silent.
    Hang(&'static str),
}

/// A received request.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) head: String,
    pub(crate) body: Value,
}

impl Received {
    /// The text that the provider is to read.
    pub(crate) fn prompt(&self) -> &str {
        self.body["messages"][1]["content"].as_str().unwrap()
    }
}

type Script = dyn Fn(&Received) -> Answer + Send + Sync;

#[derive(Clone)]
pub(crate) struct Upstream {
    pub(crate) base_url: String,
    pub(crate) requests: Arc<Mutex<Vec<Received>>>,
}

impl Upstream {
    pub(crate) async fn start(
        script: impl Fn(&Received) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<Received>>> = Arc::default();
        let script: Arc<Script> = Arc::new(script);
        let upstream = Self {
            base_url,
            requests: Arc::clone(&requests),
        };

        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, Arc::clone(&requests), Arc::clone(&script)));
            }
        });

        upstream
    }

    pub(crate) fn provider(&self) -> Arc<dyn Provider> {
        Arc::new(OpenAi::new(self.settings(Duration::from_secs(20))).unwrap())
    }

    pub(crate) fn settings(&self, silence: Duration) -> OpenAiSettings {
        let base_url = self.base_url.clone();
        let key = Some("sk-test".to_owned());
        OpenAiSettings {
            base_url,
            key,
            model: "small".to_owned(),
            silence,
        }
    }

    pub(crate) fn calls(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

async fn answer(mut stream: TcpStream, requests: Arc<Mutex<Vec<Received>>>, script: Arc<Script>) {
    let Some(request) = read(&mut stream).await else {
        return;
    };
    let answer = script(&request);
    requests.lock().unwrap().push(request);

    match answer {
        Answer::Text(text) => {
            let usage =
                json!({ "choices": [], "usage": { "prompt_tokens": 7, "completion_tokens": 3 } });
            let body = format!("{}data: {usage}\n\ndata: [DONE]\n\n", events(text));
            write(&mut stream, &(head(body.len()) + &body)).await;
        }
        Answer::Status(status, headers, body) => {
            let text = format!(
                "HTTP/1.1 {status} No\r\n{headers}content-type: application/json\r\n\
                 connection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            write(&mut stream, &text).await;
        }
        Answer::Cut(text) => write(&mut stream, &unfinished(text)).await,
        Answer::Hang(text) => {
            write(&mut stream, &unfinished(text)).await;
            std::future::pending::<()>().await;
        }
    }
}

fn head(length: usize) -> String {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n"
    )
}

/// The beginning of a response that announces more bytes than follow.
fn unfinished(text: &str) -> String {
    head(100_000) + &events(text)
}

/// The events of a text, one for each word.
fn events(text: &str) -> String {
    let event = |word: &str| {
        format!(
            "data: {}\n\n",
            json!({ "choices": [{ "index": 0, "delta": { "content": word } }] })
        )
    };
    text.split_inclusive(' ').map(event).collect()
}

async fn write(stream: &mut TcpStream, text: &str) {
    // A client that has disconnected does not read.
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = stream.flush().await;
}

async fn read(stream: &mut TcpStream) -> Option<Received> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_lowercase()
                    .strip_prefix("content-length: ")?
                    .parse()
                    .ok()
            });
            if body.len() >= length.unwrap_or(0) {
                return Some(Received {
                    head: head.to_owned(),
                    body: serde_json::from_str(body).unwrap(),
                });
            }
        }

        match stream.read(&mut buffer).await {
            Ok(count) if count > 0 => bytes.extend_from_slice(&buffer[..count]),
            Ok(_) | Err(_) => return None,
        }
    }
}
