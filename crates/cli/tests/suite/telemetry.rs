//! What the program logs, the traces it sends to a collector, and the secrets that it never shows.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use libtest_mimic::Trial;
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest, trace::v1::Span,
};
use prost::Message as _;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use crate::client::read_until;
use crate::trial::once;

pub(crate) fn trials() -> Vec<Trial> {
    once![
        a_request_its_task_and_its_children_share_a_trace_and_log_its_id,
        no_log_line_has_a_secret,
        no_error_has_the_password_of_a_store
    ]
}

const DEADLINE: Duration = Duration::from_secs(60);
const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN_ID: &str = "00f067aa0ba902b7";

/// The program, started on a folder of its own.
pub(crate) struct Program {
    child: Child,
    pub(crate) address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Program {
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_longhaul"))
            .args(["dev", "--listen", "127.0.0.1:0", "--data"])
            .arg(folder.path())
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();

        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = loop {
            let line = tokio::time::timeout(DEADLINE, lines.next_line())
                .await
                .unwrap()
                .unwrap()
                .expect("a greeting");
            if let Some((_, rest)) = line.split_once("http://") {
                break rest.split(['/', ' ']).next().unwrap().parse().unwrap();
            }
        };

        tokio::spawn(
            async move { while lines.next_line().await.is_ok_and(|line| line.is_some()) {} },
        );
        Self {
            child,
            address,
            _folder: folder,
        }
    }

    pub(crate) async fn run_task(&self, body: &Value, headers: &[(&str, &str)]) -> Value {
        let client = reqwest::Client::new();
        let mut request = client
            .post(format!("http://{}/api/tasks", self.address))
            .json(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }

        let made: Value = request
            .send()
            .await
            .unwrap()
            .error_for_status()
            .unwrap()
            .json()
            .await
            .unwrap();

        let path = format!("/api/tasks/{}", made["taskId"].as_str().unwrap());
        let events = format!("{path}/events");
        let ended = read_until(
            self.address,
            |call| call,
            (&events, &path),
            |task| task["finishedAt"].is_string(),
        );

        tokio::time::timeout(DEADLINE, ended)
            .await
            .expect("an end in time")
    }

    /// Stops it as a supervisor does, and returns everything that it logged.
    pub(crate) async fn stop(mut self) -> String {
        let mut log = String::new();
        let mut errors = self.child.stderr.take().unwrap();
        let pid = self.child.id().unwrap().to_string();
        assert!(
            std::process::Command::new("kill")
                .args(["-TERM", &pid])
                .status()
                .unwrap()
                .success()
        );

        let ended = async {
            errors.read_to_string(&mut log).await.unwrap();
            self.child.wait().await.unwrap()
        };
        let status = tokio::time::timeout(DEADLINE, ended)
            .await
            .expect("an end in time");
        assert!(status.success(), "{status}: {log}");

        log
    }
}

/// A collector that keeps the spans it receives.
async fn collector() -> (String, Arc<Mutex<Vec<Span>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let spans: Arc<Mutex<Vec<Span>>> = Arc::default();
    let collected = Arc::clone(&spans);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(collect(stream, Arc::clone(&collected)));
        }
    });

    (address, spans)
}

async fn collect(stream: TcpStream, spans: Arc<Mutex<Vec<Span>>>) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut length = 0;
        let mut line = String::new();
        loop {
            line.clear();
            if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
                return;
            }

            let lower = line.to_lowercase();
            if let Some(value) = lower.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if lower.starts_with("post ") {
                assert!(lower.starts_with("post /v1/traces "), "{line}");
            }

            if line == "\r\n" {
                break;
            }
        }

        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        let request = ExportTraceServiceRequest::decode(&*body).unwrap();
        let sent = request
            .resource_spans
            .into_iter()
            .flat_map(|one| one.scope_spans)
            .flat_map(|one| one.spans);

        spans.lock().unwrap().extend(sent);
        let response = "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\n\
                        Content-Length: 0\r\n\r\n";
        stream.write_all(response.as_bytes()).await.unwrap();
    }
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let known: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    spans
        .iter()
        .find(|span| span.name == name)
        .unwrap_or_else(|| panic!("no {name} in {known:?}"))
}

async fn a_request_its_task_and_its_children_share_a_trace_and_log_its_id() {
    let (address, spans) = collector().await;
    let program = Program::start(&["--log-format", "json", "--otlp-endpoint", &address]).await;
    let trace = format!("00-{TRACE_ID}-{SPAN_ID}-01");
    let body = json!({ "taskType": "sample.fanout", "parameters": { "children": 2 } });
    let headers = [
        ("traceparent", trace.as_str()),
        ("X-Correlation-Id", "order 7"),
    ];
    let fan = program.run_task(&body, &headers).await;

    // A fatal error of a handler is logged.
    let broken = json!({
        "taskType": "sample.fail",
        "parameters": { "kind": "fatal" },
        "correlationId": "order 8",
    });
    let broken = program.run_task(&broken, &[]).await;
    let log = program.stop().await;
    let spans = spans.lock().unwrap();
    let ours: Vec<Span> = spans
        .iter()
        .filter(|span| hex::encode(&span.trace_id) == TRACE_ID)
        .cloned()
        .collect();

    let request = named(&ours, "POST /api/tasks");
    let parent = named(&ours, "run sample.fanout");
    assert_eq!(hex::encode(&request.parent_span_id), SPAN_ID);
    assert_eq!(parent.parent_span_id, request.span_id);
    let children: Vec<&Span> = ours
        .iter()
        .filter(|span| span.parent_span_id == parent.span_id)
        .collect();
    assert!(children.len() >= 2, "{ours:?}");

    assert!(fan["traceContext"].as_str().unwrap().contains(TRACE_ID));

    let broken_trace = broken["traceContext"]
        .as_str()
        .unwrap()
        .split('-')
        .nth(1)
        .unwrap()
        .to_owned();
    assert!(
        spans
            .iter()
            .any(|span| hex::encode(&span.trace_id) == broken_trace
                && span.name == "run sample.fail")
    );
    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect();

    let line = lines
        .iter()
        .find(|line| line["task_id"] == broken["taskId"])
        .unwrap_or_else(|| panic!("{log}"));
    assert_eq!(
        (&line["trace_id"], &line["correlation_id"]),
        (&json!(broken_trace), &json!("order 8"))
    );
    assert_eq!(
        (&line["user_id"], &line["task_type"]),
        (&json!("default"), &json!("sample.fail"))
    );

    assert_eq!(line["attempt"], 1);
    assert!(
        line["timestamp"].is_string() && line["level"].is_string() && line["message"].is_string()
    );
}

async fn no_log_line_has_a_secret() {
    for format in ["json", "pretty"] {
        let program = Program::start(&["--log", "trace", "--log-format", format]).await;
        let secrets = [
            ("Authorization", "Bearer canary-token"),
            ("Cookie", "session=canary-cookie"),
        ];

        program
            .run_task(
                &json!({ "taskType": "sample.echo", "parameters": "canary-parameter" }),
                &secrets,
            )
            .await;

        let log = program.stop().await;
        assert!(log.contains("/api/tasks"), "the log of everything: {log}");
        assert!(!log.contains("canary"), "{log}");
    }
}

async fn no_error_has_the_password_of_a_store() {
    for scheme in ["postgres", "mysql"] {
        let refused = longhaul::Longhaul::open(&format!("{scheme}://user:canary@127.0.0.1:1/none"))
            .await
            .unwrap_err();
        assert!(
            !format!("{refused} {refused:?}").contains("canary"),
            "{refused:?}"
        );
    }
}
