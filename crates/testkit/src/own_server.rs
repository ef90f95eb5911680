//! A server that one test has for itself and may break: one of `scripts/services`.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{
    Condvar, LazyLock, Mutex,
    atomic::{AtomicU16, Ordering},
};
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
    _turn: Option<Turn>,
}

/// A server whose start takes all processors for seconds. Only two are there at a time.
#[derive(Debug)]
struct Turn;

static TURNS: (Mutex<usize>, Condvar) = (Mutex::new(2), Condvar::new());

impl Turn {
    fn wait() -> Self {
        let free = TURNS.0.lock().unwrap();
        *TURNS.1.wait_while(free, |free| *free == 0).unwrap() -= 1;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *TURNS.0.lock().unwrap() += 1;
        TURNS.1.notify_one();
    }
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
        let turn = (service == "rabbitmq").then(Turn::wait);
        let (port, url) = (free_port(), String::new());
        let mut server = Self {
            service,
            name,
            port,
            url,
            settings,
            process: None,
            _turn: turn,
        };
        server.wipe();
        server.start_again();
        server
    }

    /// Starts the process and waits until it listens.
    pub fn start_again(&mut self) {
        let mut process = self.services("serve").spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert_eq!(
                process.try_wait().unwrap(),
                None,
                "see target/services/own/{}",
                self.name
            );
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
        assert!(
            prepared.status.success(),
            "{}",
            String::from_utf8_lossy(&prepared.stderr)
        );
        String::from_utf8(prepared.stdout)
            .unwrap()
            .trim()
            .clone_into(&mut self.url);
    }

    /// Sends a signal by its name.
    pub fn signal(&self, signal: &str) {
        let pid = self.process.as_ref().unwrap().id().to_string();
        assert!(
            Command::new("kill")
                .args(["-s", signal, &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Where it keeps what it has.
    pub fn home(&self) -> PathBuf {
        repository()
            .join("target/services/own")
            .join(self.name)
            .join(self.service)
    }

    fn services(&self, command: &str) -> Command {
        let mut services = Command::new(repository().join("scripts/services"));
        services
            .args([command, self.service, self.name, &self.port.to_string()])
            .envs(self.settings.iter().copied());
        services
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The next slot of ports that this process gives to a server.
static NEXT_SLOT: LazyLock<AtomicU16> =
    LazyLock::new(|| AtomicU16::new(rand::rng().random_range(0..SLOTS)));
/// Slots of two ports: RabbitMQ listens on the one behind its own as well.
const SLOTS: u16 = 1_350;
/// Above what `scripts/services` and torture pick from, and below the range from which the kernel takes the ports of outgoing
/// connections: while a server starts, or is down, nobody else takes its ports.
const FIRST_PORT: u16 = 30_000;

/// The first port of a slot that is free, and that no other server of this process has had lately.
fn free_port() -> u16 {
    let is_free =
        |port: &u16| (*port..*port + 2).all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok());
    let next = || FIRST_PORT + NEXT_SLOT.fetch_add(1, Ordering::Relaxed) % SLOTS * 2;
    std::iter::repeat_with(next)
        .take(SLOTS.into())
        .find(is_free)
        .unwrap()
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
}
