//! The doorbell over LISTEN and NOTIFY: processes that share a PostgreSQL database hear of each other's submits.
//!
//! A ring is sent after the commit that it tells of, over a connection of its own, and many rings become one: a NOTIFY
//! inside each submit would make all commits of the server wait for one lock. A lost ring costs one poll.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::contract::Doorbell;
use sqlx::postgres::{PgListener, PgPool};
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

const CHANNEL: &str = "longhaul";
/// The shortest time between two rings of one process.
const REST: Duration = Duration::from_millis(10);
/// How long to wait before a lost connection is made anew.
const RECONNECT: Duration = Duration::from_secs(2);

/// One process's end of the bell.
#[derive(Debug)]
pub(crate) struct PgDoorbell {
    shared: Arc<Shared>,
    pool: PgPool,
    listens: AtomicBool,
    rings: AtomicBool,
    /// Ended with the bell.
    tasks: std::sync::Mutex<Vec<AbortOnDropHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Somebody in this process or another has rung.
    heard: Notify,
    /// This process wants to ring.
    to_ring: Notify,
}

impl PgDoorbell {
    pub(crate) fn new(pool: PgPool) -> Self {
        Self {
            shared: Arc::default(),
            pool,
            listens: AtomicBool::new(false),
            rings: AtomicBool::new(false),
            tasks: std::sync::Mutex::default(),
        }
    }

    /// Starts one of the two loops when it is first needed: a process that only submits does not listen.
    fn start(&self, started: &AtomicBool, work: impl Future<Output = ()> + Send + 'static) {
        if !started.swap(true, Ordering::Relaxed) {
            let task = AbortOnDropHandle::new(tokio::spawn(work));
            self.tasks.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(task);
        }
    }
}

#[async_trait]
impl Doorbell for PgDoorbell {
    fn ring(&self, _queue: &str) {
        self.shared.heard.notify_one();
        self.start(&self.rings, send(self.pool.clone(), Arc::clone(&self.shared)));
        self.shared.to_ring.notify_one();
    }

    async fn heard(&self) {
        self.start(&self.listens, listen(self.pool.clone(), Arc::clone(&self.shared)));
        self.shared.heard.notified().await;
    }
}

async fn send(pool: PgPool, shared: Arc<Shared>) {
    loop {
        shared.to_ring.notified().await;
        if let Err(error) = send_rings(&pool, &shared).await {
            tracing::debug!(%error, "a bell could not be rung; nodes find the tasks at their next look");
            tokio::time::sleep(RECONNECT).await;
        }
    }
}

/// Rings until something goes wrong. The connection does not wait for the disk: a lost ring costs nothing but a poll.
async fn send_rings(pool: &PgPool, shared: &Shared) -> Result<(), sqlx::Error> {
    let mut connection = pool.acquire().await?.detach();
    sqlx::query("SELECT set_config('synchronous_commit', 'off', false)").execute(&mut connection).await?;
    loop {
        sqlx::query("SELECT pg_notify($1, '')").bind(CHANNEL).execute(&mut connection).await?;
        tokio::time::sleep(REST).await;
        shared.to_ring.notified().await;
    }
}

async fn listen(pool: PgPool, shared: Arc<Shared>) {
    loop {
        if let Err(error) = hear(&pool, &shared).await {
            tracing::debug!(%error, "the bell cannot be heard; the node polls meanwhile");
        }
        tokio::time::sleep(RECONNECT).await;
    }
}

async fn hear(pool: &PgPool, shared: &Shared) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(CHANNEL).await?;
    // What was rung before we listened is looked for once.
    shared.heard.notify_one();
    loop {
        // `None` means that the connection was lost and made anew: something may have been missed.
        listener.try_recv().await?;
        shared.heard.notify_one();
    }
}
