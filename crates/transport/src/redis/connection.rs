//! The connection to Redis that a process shares. A background task maintains it.
//!
//! The commands of many callers travel on one connection and are answered in order. While the
//! server is down every command fails at once, so that no caller waits for it. Only commands that
//! were under way when it went away wait for the timeout.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::Invalid;
use redis::{AsyncConnectionConfig, Client, RedisError, RedisResult, aio::MultiplexedConnection};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use crate::random;

/// How long a command may take. A script takes well under a millisecond.
const COMMAND_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a healthy server takes to accept a connection and the password.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How often an idle connection is checked, so that the loss of a server is noticed before it is
/// needed.
const PING_INTERVAL: Duration = Duration::from_secs(2);
/// The first and the longest pause between two attempts to connect. The pause doubles each time,
/// so that a fleet does not overrun a server that comes back.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(1_600);
/// The longest namespace. It goes into every key.
const NAMESPACE_BYTES: usize = 64;

/// Whether Redis can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisState {
    Up,
    /// Why not.
    Down(String),
}

#[derive(Clone)]
enum CurrentConnection {
    Up {
        /// Tells this connection from earlier ones.
        number: u64,
        connection: MultiplexedConnection,
    },
    Down(String),
}

struct Shared {
    current: watch::Sender<CurrentConnection>,
    broken: Notify,
}

/// A Redis server and the namespace in which this deployment has its keys. Dropping it closes the
/// connection.
pub struct Redis {
    namespace: String,
    command_timeout: Duration,
    shared: Arc<Shared>,
    maintainer: AbortHandle,
}

impl Redis {
    /// Returns at once, then connects and reconnects in the background. `url` is `redis://` or,
    /// with TLS, `rediss://`. Must be called on a runtime.
    pub fn open(url: &str, namespace: &str) -> Result<Arc<Self>, Invalid> {
        Self::open_with_timeout(url, namespace, COMMAND_TIMEOUT)
    }

    /// Like [`Self::open`], with another time limit for commands.
    pub fn open_with_timeout(
        url: &str,
        namespace: &str,
        command_timeout: Duration,
    ) -> Result<Arc<Self>, Invalid> {
        check_namespace(namespace)?;
        // The parser's message is dropped because it may contain the password.
        let client = Client::open(url).map_err(|_| {
            Invalid::new(
                "redis.url",
                "is no URL of a Redis server",
                "redis://[user:password@]host[:port][/database]",
            )
        })?;

        let not_connected = CurrentConnection::Down("not connected yet".to_owned());
        let shared = Arc::new(Shared {
            current: watch::Sender::new(not_connected),
            broken: Notify::new(),
        });
        // The task holds no `Redis`, so dropping that aborts it.
        let maintain = maintain(client, command_timeout, Arc::clone(&shared));
        let maintainer = tokio::spawn(maintain).abort_handle();

        Ok(Arc::new(Self {
            namespace: namespace.to_owned(),
            command_timeout,
            shared,
            maintainer,
        }))
    }

    /// Whether the server answers, as far as is known.
    pub fn state(&self) -> RedisState {
        match &*self.shared.current.borrow() {
            CurrentConnection::Up { .. } => RedisState::Up,
            CurrentConnection::Down(reason) => RedisState::Down(reason.clone()),
        }
    }

    /// Waits until the server can be reached, or until it cannot.
    pub async fn until(&self, is_up: bool) {
        let mut current = self.shared.current.subscribe();
        let has_state =
            |current: &CurrentConnection| matches!(current, CurrentConnection::Up { .. }) == is_up;
        // The wait fails only without a sender, and `self` has the sender.
        let _ = current.wait_for(has_state).await;
    }

    /// What the server does when its memory is full: `noeviction` keeps all keys, the others
    /// discard some.
    pub async fn eviction_policy(&self) -> Result<String, String> {
        let info: String = self
            .run(async |mut to| redis::cmd("INFO").arg("memory").query_async(&mut to).await)
            .await?;

        let policy = info
            .lines()
            .find_map(|line| line.strip_prefix("maxmemory_policy:"));
        match policy {
            Some(name) => Ok(name.trim().to_owned()),
            None => Err("the server does not say".to_owned()),
        }
    }

    /// A key of this deployment.
    pub(super) fn key(&self, kind: &str, name: &str) -> String {
        format!("{}:{kind}:{name}", self.namespace)
    }

    /// Runs a command on the current connection.
    pub(super) async fn run<T, F>(
        &self,
        command: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<T, String>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let (number, connection) = match &*self.shared.current.borrow() {
            CurrentConnection::Up { number, connection } => (*number, connection.clone()),
            CurrentConnection::Down(reason) => return Err(reason.clone()),
        };

        match tokio::time::timeout(self.command_timeout, command(connection)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) if needs_reconnect(&error) => {
                Err(self.shared.break_connection(number, reason_of(&error)))
            }
            Ok(Err(error)) => Err(reason_of(&error)),
            Err(_) => {
                let reason = format!("no answer within {:?}", self.command_timeout);
                Err(self.shared.break_connection(number, reason))
            }
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.maintainer.abort();
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis")
            .field("namespace", &self.namespace)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// Marks a connection as broken, unless another has replaced it. Returns the reason.
    fn break_connection(&self, broken: u64, reason: String) -> String {
        let is_changed = self.current.send_if_modified(|current| {
            let is_current = current.has_number(broken);
            if is_current {
                *current = CurrentConnection::Down(reason.clone());
            }
            is_current
        });

        if is_changed {
            tracing::warn!(reason, "connection to Redis lost; reconnecting");
            self.broken.notify_one();
        }

        reason
    }
}

impl CurrentConnection {
    fn has_number(&self, wanted: u64) -> bool {
        matches!(self, Self::Up { number, .. } if *number == wanted)
    }
}

/// Connects, watches the connection until it breaks, and connects again.
async fn maintain(client: Client, command_timeout: Duration, shared: Arc<Shared>) {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(Some(command_timeout));
    let mut number = 0;
    let mut pause = FIRST_PAUSE;
    let mut has_warned = false;

    loop {
        let connected = client.get_multiplexed_async_connection_with_config(&config);
        match connected.await {
            Ok(connection) => {
                number += 1;
                pause = FIRST_PAUSE;
                has_warned = false;
                tracing::info!("connected to Redis");

                shared.current.send_replace(CurrentConnection::Up {
                    number,
                    connection: connection.clone(),
                });
                watch_until_broken(&shared, number, connection).await;
            }
            Err(error) => {
                let reason = reason_of(&error);
                if !has_warned {
                    tracing::warn!(reason, "Redis is unreachable; retrying");
                    has_warned = true;
                }
                shared.current.send_replace(CurrentConnection::Down(reason));
            }
        }

        tokio::time::sleep(random::jittered(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn watch_until_broken(shared: &Shared, number: u64, mut connection: MultiplexedConnection) {
    while shared.current.borrow().has_number(number) {
        // A failed command breaks the connection sooner than the next ping.
        tokio::select! {
            () = shared.broken.notified() => {}
            () = tokio::time::sleep(PING_INTERVAL) => {
                let ping: RedisResult<()> = redis::cmd("PING").query_async(&mut connection).await;
                if let Err(error) = ping {
                    shared.break_connection(number, reason_of(&error));
                }
            }
        }
    }
}

/// A server that has become a replica, or is still loading, refuses commands. Another connection
/// may reach another server.
fn needs_reconnect(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_timeout()
        || error.is_connection_dropped()
        || error.is_unrecoverable_error()
        || matches!(error.code(), Some("READONLY" | "LOADING" | "MASTERDOWN"))
}

/// What happened, without what was sent.
fn reason_of(error: &RedisError) -> String {
    match (error.code(), error.is_timeout()) {
        (Some(code), _) => format!("the server answers {code}"),
        (None, true) => "no answer in time".to_owned(),
        (None, false) => error.category().to_owned(),
    }
}

fn check_namespace(namespace: &str) -> Result<(), Invalid> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
    if (1..=NAMESPACE_BYTES).contains(&namespace.len()) && namespace.chars().all(is_plain) {
        return Ok(());
    }

    let shown: String = namespace.chars().take(80).collect();
    Err(Invalid::new(
        "redis.namespace",
        format!("is {shown:?}"),
        format!("1 to {NAMESPACE_BYTES} letters, digits, '-', '_', '.' and ':'"),
    ))
}
