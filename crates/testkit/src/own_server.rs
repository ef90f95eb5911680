//! A private server of `scripts/services` for one test, which may break it.

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
    /// Settings for `scripts/services`.
    settings: &'static [(&'static str, &'static str)],
    process: Option<Child>,
    _start_permit: Option<StartPermit>,
}

/// A permit to run a server whose start takes all processors for seconds. There are two permits.
#[derive(Debug)]
struct StartPermit;

static START_PERMITS: (Mutex<usize>, Condvar) = (Mutex::new(2), Condvar::new());

impl StartPermit {
    fn wait() -> Self {
        let (permits, freed) = &START_PERMITS;

        // The lock is released while this waits for a free permit.
        let free = permits.lock().unwrap();
        *freed.wait_while(free, |free| *free == 0).unwrap() -= 1;
        Self
    }
}

impl Drop for StartPermit {
    fn drop(&mut self) {
        let (permits, freed) = &START_PERMITS;
        *permits.lock().unwrap() += 1;
        freed.notify_one();
    }
}

impl OwnServer {
    /// Starts an empty server. Each test needs its own name.
    pub fn start(service: &'static str, name: &'static str) -> Self {
        Self::start_with(service, name, &[])
    }

    /// As [`Self::start`], with settings of `scripts/services`.
    pub fn start_with(
        service: &'static str,
        name: &'static str,
        settings: &'static [(&'static str, &'static str)],
    ) -> Self {
        let mut server = Self {
            service,
            name,
            port: free_port(),
            url: String::new(),
            settings,
            process: None,
            _start_permit: (service == "rabbitmq").then(StartPermit::wait),
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

    /// Deletes the data of a stopped server.
    pub fn wipe(&mut self) {
        let mark = self.home().join("initialised");
        assert!(!mark.exists() || std::fs::remove_file(mark).is_ok());
        let prepared = self.services("prepare").output().unwrap();
        assert!(
            prepared.status.success(),
            "{}",
            String::from_utf8_lossy(&prepared.stderr)
        );

        let url = String::from_utf8(prepared.stdout).unwrap();
        url.trim().clone_into(&mut self.url);
    }

    /// Sends a signal by its name.
    pub fn signal(&self, signal: &str) {
        let pid = self.process.as_ref().unwrap().id().to_string();
        let mut kill = Command::new("kill");
        let status = kill.args(["-s", signal, &pid]).status().unwrap();
        assert!(status.success());
    }

    /// The folder of the server's data.
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

/// The next slot of ports for a server of this process.
static NEXT_SLOT: LazyLock<AtomicU16> =
    LazyLock::new(|| AtomicU16::new(rand::rng().random_range(0..SLOTS)));
/// Slots of two ports, because RabbitMQ also listens on the port after its own.
const SLOTS: u16 = 1_350;
/// Above the ports of `scripts/services` and torture, and below the kernel's range for outgoing
/// connections, so that no other process takes a port while its server is down.
const FIRST_PORT: u16 = 30_000;

/// The first port of a free slot that no other server of this process has used recently.
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
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_folder.ancestors().nth(2).unwrap()
}
