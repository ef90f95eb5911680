//! Runs the real program to its end.

use std::process::Stdio;

use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use crate::{client::DEADLINE, server::Server};

/// The exit status and the output of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Run {
    /// The output of a run that must have ended with this status.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> String {
        assert_eq!(self.code, code, "{self:?}");
        assert!(
            !self.out.contains('\u{1b}'),
            "no colours without a terminal: {self:?}"
        );
        self.out
    }

    #[track_caller]
    pub(crate) fn json(self) -> Value {
        serde_json::from_str(&self.expect(0)).unwrap()
    }

    /// The standard error of a run that must have failed with this status.
    #[track_caller]
    pub(crate) fn refusal(self, code: i32) -> String {
        assert_eq!(self.code, code, "{self:?}");
        assert!(!self.err.is_empty(), "{self:?}");
        self.err
    }
}

/// The program with the server's address in an otherwise empty environment.
pub(crate) fn command(url: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_longhaul"));
    command.args(arguments).env_clear().env("LONGHAUL_URL", url);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

pub(crate) async fn run_at(url: &str, arguments: &[&str], input: Option<&str>) -> Run {
    let mut command = command(url, arguments);
    if input.is_some() {
        command.stdin(Stdio::piped());
    }

    let mut child = command.spawn().unwrap();
    if let (Some(text), Some(mut pipe)) = (input, child.stdin.take()) {
        pipe.write_all(text.as_bytes()).await.unwrap();
    }

    let ended = tokio::time::timeout(DEADLINE, child.wait_with_output())
        .await
        .expect("it ends in time")
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();

    Run {
        code: ended.status.code().unwrap(),
        out: text(ended.stdout),
        err: text(ended.stderr),
    }
}

impl Server {
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) async fn run(&self, arguments: &[&str]) -> Run {
        run_at(&self.url(), arguments, None).await
    }

    /// Submits with the program, and returns the id that it printed.
    pub(crate) async fn run_submit(&self, arguments: &[&str]) -> String {
        let printed = self.run(&[&["submit"], arguments].concat()).await.expect(0);
        printed.trim().to_owned()
    }
}
