//! The doorbell over LISTEN and NOTIFY: processes that share a PostgreSQL database hear of each other's submits.
//!
//! A NOTIFY inside each submit would make all commits of the server wait for one lock. So a process rings now and then
//! only: a submit that finds the bell at rest rings within its own commit, which saves the way back, and those that follow are
//! told of together, over a connection of its own. A lost ring costs one poll. Neither end of the bell takes a connection from the
//! pool: its connections stay with the operations, and whoever waited for the one that is missing would wait in vain.
//!
//! The commit of a lone task that is due rings with its id, queue and type, separated by spaces, which neither has. All
//! other rings say nothing.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use longhaul_domain::{
    TaskId,
    contract::{Doorbell, doorbell::RungFor},
};
use sqlx::Connection as _;
use sqlx::postgres::{PgConnection, PgListener, PgPool, PgPoolOptions};
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

/// The statements that insert tasks name it, too.
const CHANNEL: &str = "longhaul";
/// The shortest time between two rings of one process.
const REST: Duration = Duration::from_millis(10);
/// Tasks that are known by name. When more are rung for, whoever hears looks for all.
const MOST_NAMED: usize = 100;
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
    /// What for, since it was last heard.
    rung_for: std::sync::Mutex<RungSince>,
    /// This process wants to ring.
    to_ring: Notify,
    /// When this process rang last.
    rung_at: std::sync::Mutex<Option<Instant>>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum RungSince {
    #[default]
    Nothing,
    Named(Vec<RungFor>),
    Anything,
}

impl RungSince {
    fn add(&mut self, ring: Option<RungFor>) {
        *self = match (std::mem::take(self), ring) {
            (Self::Nothing, Some(name)) => Self::Named(vec![name]),
            (Self::Named(mut names), Some(name)) if names.len() < MOST_NAMED => {
                names.push(name);
                Self::Named(names)
            }
            _ => Self::Anything,
        };
    }

    /// What was rung for, if there was a ring.
    fn take(&mut self) -> Option<Vec<RungFor>> {
        match std::mem::take(self) {
            Self::Nothing => None,
            Self::Named(names) => Some(names),
            Self::Anything => Some(Vec::new()),
        }
    }
}

/// The task that a ring names, if it does.
fn named(payload: &str) -> Option<RungFor> {
    let mut words = payload.split(' ').map(str::to_owned);
    let task_id = TaskId(words.next()?.parse().ok()?);
    let (queue, task_type) = (words.next()?, words.next()?);
    words.next().is_none().then_some(RungFor {
        task_id,
        queue,
        task_type,
    })
}

impl Shared {
    fn hear(&self, ring: Option<RungFor>) {
        self.rung_for().add(ring);
        self.heard.notify_one();
    }

    fn rung_for(&self) -> std::sync::MutexGuard<'_, RungSince> {
        self.rung_for
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Whoever asks rings now, and the bell's rest begins; or else it still rests so long.
    fn take_turn(&self, now: Instant) -> Result<(), Duration> {
        let mut rung_at = self.rung_at();
        let rest = rung_at.map_or(Duration::ZERO, |at| {
            REST.saturating_sub(now.saturating_duration_since(at))
        });
        if !rest.is_zero() {
            return Err(rest);
        }
        *rung_at = Some(now);
        Ok(())
    }

    fn rung_at(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.rung_at
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
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
            self.tasks
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .push(task);
        }
    }
}

#[async_trait]
impl Doorbell for PgDoorbell {
    fn ring(&self, _queue: &str) {
        self.shared.hear(None);
        self.start(
            &self.rings,
            send(self.pool.clone(), Arc::clone(&self.shared)),
        );
        self.shared.to_ring.notify_one();
    }

    fn take_turn(&self) -> bool {
        self.shared.take_turn(Instant::now()).is_ok()
    }

    fn rung(&self) {
        self.shared.hear(None);
    }

    async fn heard(&self) -> Vec<RungFor> {
        self.start(
            &self.listens,
            listen(self.pool.clone(), Arc::clone(&self.shared)),
        );
        loop {
            self.shared.heard.notified().await;
            // What was rung for may have been told together with the ring before.
            let rung_for = self.shared.rung_for().take();
            if let Some(rung_for) = rung_for {
                return rung_for;
            }
        }
    }
}

async fn send(pool: PgPool, shared: Arc<Shared>) {
    loop {
        shared.to_ring.notified().await;
        let Ok(rung) = pool
            .close_event()
            .do_until(send_rings(&pool, &shared))
            .await
        else {
            return;
        };
        if let Err(error) = rung {
            tracing::debug!(%error, "a bell could not be rung; nodes find the tasks at their next look");
            tokio::time::sleep(RECONNECT).await;
        }
    }
}

/// Rings until something goes wrong. The connection does not wait for the disk: a lost ring costs nothing but a poll.
async fn send_rings(pool: &PgPool, shared: &Shared) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect_with(&pool.connect_options()).await?;
    sqlx::query("SELECT set_config('synchronous_commit', 'off', false)")
        .execute(&mut connection)
        .await?;
    loop {
        if let Err(rest) = shared.take_turn(Instant::now()) {
            // Then it rings in any case: those who take their turn meanwhile may come to nothing.
            tokio::time::sleep(rest).await;
            *shared.rung_at() = Some(Instant::now());
        }
        sqlx::query("SELECT pg_notify($1, '')")
            .bind(CHANNEL)
            .execute(&mut connection)
            .await?;
        shared.to_ring.notified().await;
    }
}

async fn listen(pool: PgPool, shared: Arc<Shared>) {
    loop {
        let Ok(heard) = pool.close_event().do_until(hear(&pool, &shared)).await else {
            return;
        };
        if let Err(error) = heard {
            tracing::debug!(%error, "the bell cannot be heard; the node polls meanwhile");
        }
        tokio::time::sleep(RECONNECT).await;
    }
}

async fn hear(pool: &PgPool, shared: &Shared) -> Result<(), sqlx::Error> {
    let own = PgPoolOptions::new()
        .max_connections(1)
        .connect_with((*pool.connect_options()).clone())
        .await?;
    let mut listener = PgListener::connect_with(&own).await?;
    listener.listen(CHANNEL).await?;
    // What was rung before we listened is looked for once.
    shared.hear(None);
    loop {
        // `None` means that the connection was lost and made anew: something may have been missed.
        let ring = listener.try_recv().await?;
        shared.hear(ring.and_then(|ring| named(ring.payload())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_that_was_rung_rests() {
        let (shared, now) = (Shared::default(), Instant::now());
        assert_eq!(shared.take_turn(now), Ok(()));
        assert_eq!(shared.take_turn(now), Err(REST));
        assert_eq!(shared.take_turn(now + REST / 2), Err(REST / 2));
        assert_eq!(shared.take_turn(now + REST), Ok(()));
        assert_eq!(shared.take_turn(now + REST), Err(REST));
    }

    #[test]
    fn a_ring_names_its_task_or_nothing() {
        let name = RungFor {
            task_id: TaskId(uuid::Uuid::from_u128(7)),
            queue: "q".to_owned(),
            task_type: "t".to_owned(),
        };
        let id = name.task_id.0;
        assert_eq!(named(&format!("{id} q t")), Some(name));
        let others = [
            String::new(),
            id.to_string(),
            format!("{id} q"),
            format!("{id} q t more"),
            "7 q t".to_owned(),
        ];
        assert!(others.iter().all(|payload| named(payload).is_none()));
    }

    #[test]
    fn names_are_told_as_long_as_they_are_all_that_was_rung_for() {
        let name = |number| RungFor {
            task_id: TaskId(uuid::Uuid::from_u128(number)),
            queue: "q".to_owned(),
            task_type: "t".to_owned(),
        };
        let mut since = RungSince::default();
        since.add(Some(name(1)));
        since.add(Some(name(2)));
        assert_eq!(
            (since.take(), since.take()),
            (Some(vec![name(1), name(2)]), None)
        );
        for rings in [
            vec![Some(name(1)), None],
            vec![None, Some(name(1))],
            vec![Some(name(1)); MOST_NAMED + 1],
        ] {
            rings.into_iter().for_each(|ring| since.add(ring));
            assert_eq!((since.take(), since.take()), (Some(Vec::new()), None));
        }
    }
}
