//! The connection to Redis that everything of a process shares, kept up in the background.
//!
//! Commands of many callers travel on one connection and are answered in order. While the server is away every question
//! is refused at once, so that nobody waits for it; only those that were under way when it went wait for the timeout.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::Invalid;
use redis::{AsyncConnectionConfig, Client, RedisError, RedisResult, aio::MultiplexedConnection};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use crate::random;

/// An answer that takes longer than this is not worth waiting for: a script takes well under a millisecond.
const ANSWER_WITHIN: Duration = Duration::from_millis(500);
/// A server that is there accepts a connection, and the password, in this time.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// How often a silent connection is tried, so that a server that vanished is noticed before somebody needs it.
const PING_EVERY: Duration = Duration::from_secs(2);
/// Rests between two tries to connect, doubled each time, so that a fleet does not fall on a server that comes back.
const RESTS: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(1_600)];
/// The namespace goes into every key.
const NAMESPACE_BYTES: usize = 64;

/// Whether Redis can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisState {
    Up,
    /// Why not.
    Down(String),
}

#[derive(Clone)]
enum Link {
    Up {
        number: u64,
        connection: MultiplexedConnection,
    },
    Down(String),
}

struct Shared {
    link: watch::Sender<Link>,
    broke: Notify,
}

/// A Redis server and the namespace in which this deployment keeps its keys. Dropping it closes the connection.
pub struct Redis {
    namespace: String,
    answer_within: Duration,
    shared: Arc<Shared>,
    keeper: AbortHandle,
}

impl Redis {
    /// Returns at once and connects in the background, again and again. `url` is `redis://` or, with TLS, `rediss://`. Must
    /// be called on a runtime.
    pub fn open(url: &str, namespace: &str) -> Result<Arc<Self>, Invalid> {
        Self::open_patiently(url, namespace, ANSWER_WITHIN)
    }

    /// As [`Self::open`], for whoever would rather wait for an answer than do without it.
    pub fn open_patiently(
        url: &str,
        namespace: &str,
        answer_within: Duration,
    ) -> Result<Arc<Self>, Invalid> {
        check_namespace(namespace)?;
        // What the parser says may contain the password.
        let client = Client::open(url).map_err(|_| {
            Invalid::new(
                "redis.url",
                "is no URL of a Redis server",
                "redis://[user:password@]host[:port][/database]",
            )
        })?;
        let shared = Arc::new(Shared {
            link: watch::Sender::new(Link::Down("not connected yet".to_owned())),
            broke: Notify::new(),
        });
        let keeper = tokio::spawn(keep(client, answer_within, Arc::clone(&shared))).abort_handle();
        Ok(Arc::new(Self {
            namespace: namespace.to_owned(),
            answer_within,
            shared,
            keeper,
        }))
    }

    /// Whether the server answers, as far as is known.
    pub fn state(&self) -> RedisState {
        state_of(&self.shared.link.borrow())
    }

    /// Waits until the server can be reached, or until it cannot.
    pub async fn until(&self, is_up: bool) {
        let mut link = self.shared.link.subscribe();
        // It fails only when there is no sender any more, and that is ours.
        let _ = link
            .wait_for(|link| matches!(link, Link::Up { .. }) == is_up)
            .await;
    }

    /// What the server does when its memory is full: `noeviction` keeps everything, the others forget.
    pub async fn eviction_policy(&self) -> Result<String, String> {
        let info: String = self
            .ask(async |mut to| redis::cmd("INFO").arg("memory").query_async(&mut to).await)
            .await?;
        let policy = info
            .lines()
            .find_map(|line| line.strip_prefix("maxmemory_policy:"));
        policy
            .map(|name| name.trim().to_owned())
            .ok_or_else(|| "the server does not say".to_owned())
    }

    /// A key of this deployment.
    pub(super) fn key(&self, kind: &str, name: &str) -> String {
        format!("{}:{kind}:{name}", self.namespace)
    }

    /// Asks over the connection of now. The question is made with it and sees it once.
    pub(super) async fn ask<T, F>(
        &self,
        question: impl FnOnce(MultiplexedConnection) -> F,
    ) -> Result<T, String>
    where
        F: Future<Output = RedisResult<T>>,
    {
        let (number, connection) = match &*self.shared.link.borrow() {
            Link::Up { number, connection } => (*number, connection.clone()),
            Link::Down(reason) => return Err(reason.clone()),
        };
        match tokio::time::timeout(self.answer_within, question(connection)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) if needs_another_connection(&error) => {
                Err(self.shared.breaks(number, reason_of(&error)))
            }
            Ok(Err(error)) => Err(reason_of(&error)),
            Err(_) => Err(self
                .shared
                .breaks(number, format!("no answer within {:?}", self.answer_within))),
        }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.keeper.abort();
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
    /// This connection is no good any more. One that was made meanwhile is.
    fn breaks(&self, broken: u64, reason: String) -> String {
        let breaks = self.link.send_if_modified(|link| {
            let is_it = matches!(link, Link::Up { number, .. } if *number == broken);
            if is_it {
                *link = Link::Down(reason.clone());
            }
            is_it
        });
        if breaks {
            tracing::warn!(reason, "the connection to Redis is lost");
            self.broke.notify_one();
        }
        reason
    }
}

/// Connects, watches the connection until it breaks, and connects again.
async fn keep(client: Client, answer_within: Duration, shared: Arc<Shared>) {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_WITHIN))
        .set_response_timeout(Some(answer_within));
    let (mut number, mut rest, mut has_told) = (0, RESTS[0], false);
    loop {
        match client
            .get_multiplexed_async_connection_with_config(&config)
            .await
        {
            Ok(connection) => {
                number += 1;
                (rest, has_told) = (RESTS[0], false);
                tracing::info!("connected to Redis");
                shared.link.send_replace(Link::Up {
                    number,
                    connection: connection.clone(),
                });
                watch_over(&shared, number, connection).await;
            }
            Err(error) => {
                let reason = reason_of(&error);
                if !has_told {
                    tracing::warn!(reason, "Redis cannot be reached; trying again and again");
                    has_told = true;
                }
                shared.link.send_replace(Link::Down(reason));
            }
        }
        tokio::time::sleep(random::part_of(rest)).await;
        rest = (rest * 2).min(RESTS[1]);
    }
}

/// Returns when the connection has broken.
async fn watch_over(shared: &Shared, number: u64, mut connection: MultiplexedConnection) {
    loop {
        tokio::select! {
            () = shared.broke.notified() => {}
            () = tokio::time::sleep(PING_EVERY) => {
                let ping: RedisResult<()> = redis::cmd("PING").query_async(&mut connection).await;
                if let Err(error) = ping {
                    shared.breaks(number, reason_of(&error));
                }
            }
        }
        if !matches!(&*shared.link.borrow(), Link::Up { number: now, .. } if *now == number) {
            return;
        }
    }
}

fn state_of(link: &Link) -> RedisState {
    match link {
        Link::Up { .. } => RedisState::Up,
        Link::Down(reason) => RedisState::Down(reason.clone()),
    }
}

/// A server that has become a replica, or is still loading, will not do what it is asked; another one may be there.
fn needs_another_connection(error: &RedisError) -> bool {
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
    let allowed = format!("1 to {NAMESPACE_BYTES} letters, digits, '-', '_', '.' and ':'");
    Err(Invalid::new(
        "redis.namespace",
        format!("is {:?}", namespace.chars().take(80).collect::<String>()),
        allowed,
    ))
}
