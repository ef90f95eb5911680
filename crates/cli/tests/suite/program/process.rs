//! Starts the program, sends it HTTP requests, and stops it.

use std::net::SocketAddr;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

use crate::client::{Call, read_until};
use crate::database::Database;

/// No step of a test takes this long.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

impl Database {
    /// The program with the configuration of this test and an otherwise empty environment.
    pub(crate) fn program(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .kill_on_drop(true);
        command
            .env_clear()
            .env("LONGHAUL_STORE", &self.url)
            .env("LONGHAUL_LISTEN", "127.0.0.1:0");

        command.env("NO_COLOR", "1");
        command
    }

    /// Runs a command to its end.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Answer {
        answer(self.program(arguments)).await
    }

    /// A new token of this owner.
    pub(crate) async fn token(&self, owner: &str) -> String {
        let scopes = "tasks:read,tasks:write,operate";
        let made = self
            .run(&[
                "token", "create", "--owner", owner, "--scopes", scopes, "--json",
            ])
            .await
            .ok();

        let made: Value = serde_json::from_str(&made).unwrap();
        made["token"].as_str().unwrap().to_owned()
    }

    pub(crate) async fn start(&self, arguments: &[&str]) -> Process {
        Process::start(self.program(arguments)).await
    }
}

pub(crate) async fn answer(mut command: Command) -> Answer {
    let done = tokio::time::timeout(DEADLINE, command.output())
        .await
        .expect("an end in time");
    Answer(done.unwrap())
}

/// How a command ended, and what it printed.
pub(crate) struct Answer(Output);

impl Answer {
    pub(crate) fn out(&self) -> String {
        String::from_utf8_lossy(&self.0.stdout).into_owned()
    }

    /// Standard output and standard error.
    pub(crate) fn all(&self) -> String {
        format!("{}{}", self.out(), String::from_utf8_lossy(&self.0.stderr))
    }

    #[track_caller]
    pub(crate) fn ok(&self) -> String {
        assert!(self.0.status.success(), "{}", self.all());
        self.out()
    }

    /// Checks that the command failed with an error, and returns all that it printed.
    #[track_caller]
    pub(crate) fn failed(&self) -> String {
        assert_eq!(self.0.status.code(), Some(1), "{}", self.all());
        self.all()
    }
}

/// A node that runs.
pub(crate) struct Process {
    child: Child,
    _out: Lines<BufReader<ChildStdout>>,
    log: Lines<BufReader<ChildStderr>>,
    pub(crate) greeting: String,
}

impl Process {
    /// Starts a node and waits for its greeting.
    pub(crate) async fn start(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let first = tokio::time::timeout(DEADLINE, out.next_line())
            .await
            .expect("a greeting in time")
            .unwrap();

        let Some(greeting) = first else {
            let mut text = String::new();
            while let Ok(Some(line)) = log.next_line().await {
                text += &line;
            }
            panic!("it did not start: {text}");
        };

        Self {
            child,
            _out: out,
            log,
            greeting,
        }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        let address = self
            .greeting
            .split_whitespace()
            .find(|word| word.starts_with("http://"));
        format!("{}{path}", address.expect("the address of the API"))
    }

    pub(crate) async fn get(&self, token: &str, path: &str) -> (u16, Value) {
        let response = client()
            .get(self.url(path))
            .bearer_auth(token)
            .send()
            .await
            .unwrap();

        (
            response.status().as_u16(),
            response.json().await.unwrap_or_default(),
        )
    }

    /// The answer of `/readyz` once it is 200. A slow store makes a node not ready for a moment.
    pub(crate) async fn ready(&self) -> Value {
        let ready = async {
            loop {
                let (status, health) = self.get("", "/readyz").await;
                if status == 200 {
                    return health;
                }
                assert_eq!(status, 503, "{health}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };

        tokio::time::timeout(DEADLINE, ready)
            .await
            .expect("it is ready in time")
    }

    pub(crate) async fn post(&self, token: &str, path: &str) -> (u16, Value) {
        let response = client()
            .post(self.url(path))
            .bearer_auth(token)
            .send()
            .await
            .unwrap();

        (
            response.status().as_u16(),
            response.json().await.unwrap_or_default(),
        )
    }

    pub(crate) async fn submit(&self, token: &str, task_type: &str, parameters: Value) -> String {
        let body = json!({ "taskType": task_type, "parameters": parameters });
        let sent = client()
            .post(self.url("/api/tasks"))
            .bearer_auth(token)
            .json(&body)
            .send()
            .await
            .unwrap();
        assert_eq!(sent.status().as_u16(), 202, "{:?}", sent.text().await);
        let answer: Value = sent.json().await.unwrap();
        answer["taskId"].as_str().unwrap().to_owned()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.url("")
            .trim_start_matches("http://")
            .parse()
            .expect("an address and a port")
    }

    /// Waits until the task has this status.
    pub(crate) async fn until(&self, token: &str, id: &str, status: &str) -> Value {
        let events = format!("/api/tasks/{id}/events");
        let path = format!("/api/tasks/{id}");
        self.until_value(token, (&events, &path), |task| task["status"] == status)
            .await
    }

    /// The value at the path, once it satisfies the condition. It is read again after each event.
    pub(crate) async fn until_value(
        &self,
        token: &str,
        events_and_path: (&str, &str),
        condition: impl Fn(&Value) -> bool,
    ) -> Value {
        let signed = |call: Call| call.header("Authorization", &format!("Bearer {token}"));
        let read = read_until(self.address(), signed, events_and_path, condition);
        tokio::time::timeout(DEADLINE, read)
            .await
            .unwrap_or_else(|_| panic!("no expected value of {events_and_path:?} in time"))
    }

    /// Waits until a live stream of this caller ends because the token is no longer valid.
    pub(crate) async fn until_refused(&self, token: &str) {
        let live = client()
            .get(self.url("/api/events"))
            .bearer_auth(token)
            .send()
            .await
            .unwrap();
        if live.status() != 401 {
            tokio::time::timeout(DEADLINE, live.bytes())
                .await
                .expect("an end in time")
                .unwrap();
        }
    }

    /// Sends a signal as a supervisor would.
    pub(crate) async fn signal(&self, name: &str) {
        let id = self.child.id().expect("it runs").to_string();
        assert!(
            Command::new("kill")
                .args([name, &id])
                .status()
                .await
                .unwrap()
                .success()
        );
    }

    /// Waits for a line of the log.
    pub(crate) async fn logged(&mut self, wanted: &str) {
        let found = async {
            while let Some(line) = self.log.next_line().await.unwrap() {
                if line.contains(wanted) {
                    return;
                }
            }
            panic!("it ended without {wanted:?}");
        };

        tokio::time::timeout(DEADLINE, found)
            .await
            .expect("the line in time");
    }

    /// Waits for the end, which must be a clean one.
    pub(crate) async fn ended(mut self) {
        let ended = tokio::time::timeout(DEADLINE, self.child.wait())
            .await
            .expect("an end in time")
            .unwrap();
        assert!(ended.success(), "{ended}");
    }

    pub(crate) async fn stop(self) {
        self.signal("-TERM").await;
        self.ended().await;
    }
}

fn client() -> reqwest::Client {
    reqwest::Client::builder()
        .no_proxy()
        .timeout(DEADLINE)
        .build()
        .unwrap()
}
