//! A Redis server that one test has for itself and may break: that of `scripts/services`.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// A private server. It is killed when this is dropped.
#[derive(Debug)]
pub(super) struct OwnServer {
    name: &'static str,
    port: u16,
    pub(super) url: String,
    process: Option<Child>,
}

impl OwnServer {
    /// Starts an empty server. Each test has another name.
    pub(super) fn start(name: &'static str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let prepared = services("prepare", name, port).output().unwrap();
        assert!(prepared.status.success(), "{}", String::from_utf8_lossy(&prepared.stderr));
        let url = String::from_utf8(prepared.stdout).unwrap().trim().to_owned();
        let mut server = Self { name, port, url, process: None };
        server.start_again();
        server
    }

    /// Starts the process and waits until it answers.
    pub(super) fn start_again(&mut self) {
        let mut process = services("serve", self.name, self.port).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while redis::Client::open(self.url.as_str()).unwrap().get_connection().is_err() {
            assert_eq!(process.try_wait().unwrap(), None, "see target/services/own/{}", self.name);
            assert!(Instant::now() < deadline, "Redis does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        self.process = Some(process);
    }

    pub(super) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Sends a signal by its name.
    pub(super) fn signal(&self, signal: &str) {
        let pid = self.process.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    }

    /// One command, without an answer.
    pub(super) fn command(&self, words: &[&str]) {
        let mut connection = redis::Client::open(self.url.as_str()).unwrap().get_connection().unwrap();
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        let _: redis::Value = command.query(&mut connection).unwrap();
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn services(command: &str, name: &str, port: u16) -> Command {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let mut services = Command::new(repository.join("scripts/services"));
    services.args([command, "redis", name, &port.to_string()]);
    services
}
