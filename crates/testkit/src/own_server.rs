//! A server that one test has for itself and may break: one of `scripts/services`.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rand::RngExt as _;

/// A private server. It is killed when this is dropped.
#[derive(Debug)]
pub struct OwnServer {
    service: &'static str,
    name: &'static str,
    port: u16,
    pub url: String,
    /// Settings that it is started with.
    settings: &'static [(&'static str, &'static str)],
    process: Option<Child>,
}

impl OwnServer {
    /// Starts an empty server. Each test has another name.
    pub fn start(service: &'static str, name: &'static str) -> Self {
        Self::start_with(service, name, &[])
    }

    /// As [`Self::start`], with settings of `scripts/services`.
    pub fn start_with(
        service: &'static str,
        name: &'static str,
        settings: &'static [(&'static str, &'static str)],
    ) -> Self {
        let mut server = Self { service, name, port: free_port(), url: String::new(), settings, process: None };
        server.wipe();
        server.start_again();
        server
    }

    /// Starts the process and waits until it listens.
    pub fn start_again(&mut self) {
        let mut process = self.services("serve").spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert_eq!(process.try_wait().unwrap(), None, "see target/services/own/{}", self.name);
            assert!(Instant::now() < deadline, "{} does not start", self.service);
            std::thread::sleep(Duration::from_millis(20));
        }
        self.process = Some(process);
    }

    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Throws away whatever a server that does not run has kept.
    pub fn wipe(&mut self) {
        let mark = self.home().join("initialised");
        assert!(!mark.exists() || std::fs::remove_file(mark).is_ok());
        let prepared = self.services("prepare").output().unwrap();
        assert!(prepared.status.success(), "{}", String::from_utf8_lossy(&prepared.stderr));
        String::from_utf8(prepared.stdout).unwrap().trim().clone_into(&mut self.url);
    }

    /// Sends a signal by its name.
    pub fn signal(&self, signal: &str) {
        let pid = self.process.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    }

    /// Where it keeps what it has.
    pub fn home(&self) -> PathBuf {
        repository().join("target/services/own").join(self.name).join(self.service)
    }

    fn services(&self, command: &str) -> Command {
        let mut services = Command::new(repository().join("scripts/services"));
        services.args([command, self.service, self.name, &self.port.to_string()]).envs(self.settings.iter().copied());
        services
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port for a server that comes and goes. It is below the range from which the kernel takes those of outgoing connections: nobody
/// takes it while the server is down, and whoever knocks there meanwhile is not connected to itself.
fn free_port() -> u16 {
    let mut ports = std::iter::repeat_with(|| rand::rng().random_range(20_000..30_000));
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}
