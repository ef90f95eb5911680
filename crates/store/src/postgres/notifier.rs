//! The notifier over LISTEN and NOTIFY. Processes that share a PostgreSQL database learn of each
//! other's submits.
//!
//! A NOTIFY in each submit would make all commits of the server wait for one lock. So each process
//! limits its hints. The first submit after a pause sends the hint in its own commit, which saves a
//! round trip. One hint over a separate connection covers the submits that follow. A lost hint
//! costs one poll.
//!
//! Neither end of the hint uses the pool, whose connections belong to the operations.
//!
//! A lone due task's hint carries its id, queue and type, separated by spaces. Queues and types
//! have no spaces. All other hints are empty.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use longhaul_domain::{
    TaskId,
    contract::{Notifier, notifier::HintedTask},
};
use sqlx::Connection as _;
use sqlx::postgres::{PgConnection, PgListener, PgPool, PgPoolOptions};
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use crate::record;

/// The statements that insert tasks use the same name.
const CHANNEL: &str = "longhaul";
/// The shortest time between two hints of one process.
const REST: Duration = Duration::from_millis(10);
/// The most tasks that are kept by name. With more, the node looks for all due tasks.
const MOST_NAMED: usize = 100;
/// The pause before a lost connection is opened again.
const RECONNECT: Duration = Duration::from_secs(2);

/// One process's end of the hint.
#[derive(Debug)]
pub(crate) struct PgNotifier {
    shared: Arc<Shared>,
    pool: PgPool,
    listens: AtomicBool,
    notifies: AtomicBool,
    /// The two loops. They end when the notifier is dropped.
    tasks: std::sync::Mutex<Vec<AbortOnDropHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Wakes the listener after a hint from this process or another.
    received: Notify,
    /// The hints since the listener last woke.
    hinted: std::sync::Mutex<HintedSince>,
    /// Wakes the sending loop.
    to_notify: Notify,
    /// When this process last sent a hint.
    published_at: std::sync::Mutex<Option<Instant>>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum HintedSince {
    #[default]
    Nothing,
    Named(Vec<HintedTask>),
    Anything,
}

impl HintedSince {
    fn add(&mut self, hint: Option<HintedTask>) {
        *self = match (std::mem::take(self), hint) {
            (Self::Nothing, Some(name)) => Self::Named(vec![name]),
            (Self::Named(mut names), Some(name)) if names.len() < MOST_NAMED => {
                names.push(name);
                Self::Named(names)
            }
            _ => Self::Anything,
        };
    }

    /// The named tasks, or an empty list for all. `None` without a hint.
    fn take(&mut self) -> Option<Vec<HintedTask>> {
        match std::mem::take(self) {
            Self::Nothing => None,
            Self::Named(names) => Some(names),
            Self::Anything => Some(Vec::new()),
        }
    }
}

/// The task that a hint names, if any.
fn named(payload: &str) -> Option<HintedTask> {
    let mut words = payload.split(' ');
    let task_id = TaskId(words.next()?.parse().ok()?);
    let queue = record::queue_name(words.next()?);
    let task_type = words.next()?.to_owned();

    words.next().is_none().then_some(HintedTask {
        task_id,
        queue,
        task_type,
    })
}

impl Shared {
    fn receive(&self, hint: Option<HintedTask>) {
        // Store before waking: the listener reads the hint when it wakes.
        self.hinted().add(hint);
        self.received.notify_one();
    }

    fn hinted(&self) -> std::sync::MutexGuard<'_, HintedSince> {
        // A panic cannot leave the value half changed, so a poisoned lock is still good.
        self.hinted
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Takes the right to send a hint now and starts the pause. The error is the rest of the pause.
    fn take_turn(&self, now: Instant) -> Result<(), Duration> {
        // One lock covers check and update, so that one caller wins.
        let mut published_at = self.published_at();
        let rest = published_at.map_or(Duration::ZERO, |at| {
            REST.saturating_sub(now.saturating_duration_since(at))
        });
        if !rest.is_zero() {
            return Err(rest);
        }

        *published_at = Some(now);
        Ok(())
    }

    fn published_at(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        // The value is one assignment, so a poisoned lock is still good.
        self.published_at
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl PgNotifier {
    pub(crate) fn new(pool: PgPool) -> Self {
        Self {
            shared: Arc::default(),
            pool,
            listens: AtomicBool::new(false),
            notifies: AtomicBool::new(false),
            tasks: std::sync::Mutex::default(),
        }
    }

    /// Starts one of the two loops on first use. A process that only submits does not listen.
    fn start(&self, started: &AtomicBool, work: impl Future<Output = ()> + Send + 'static) {
        if !started.swap(true, Ordering::Relaxed) {
            // The handle aborts the loop when the notifier is dropped.
            let task = AbortOnDropHandle::new(tokio::spawn(work));
            // A panic cannot leave the list half changed, so a poisoned lock is still good.
            self.tasks
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .push(task);
        }
    }
}

#[async_trait]
impl Notifier for PgNotifier {
    fn notify(&self, _queue: &str) {
        self.shared.receive(None);
        self.start(
            &self.notifies,
            send(self.pool.clone(), Arc::clone(&self.shared)),
        );
        self.shared.to_notify.notify_one();
    }

    fn take_turn(&self) -> bool {
        self.shared.take_turn(Instant::now()).is_ok()
    }

    fn notified_in_commit(&self) {
        self.shared.receive(None);
    }

    async fn notified(&self) -> Vec<HintedTask> {
        self.start(
            &self.listens,
            listen(self.pool.clone(), Arc::clone(&self.shared)),
        );

        loop {
            self.shared.received.notified().await;
            // An earlier wake may have taken this hint already.
            let hinted = self.shared.hinted().take();
            if let Some(hinted) = hinted {
                return hinted;
            }
        }
    }
}

async fn send(pool: PgPool, shared: Arc<Shared>) {
    loop {
        shared.to_notify.notified().await;

        let Ok(published) = pool
            .close_event()
            .do_until(send_notifications(&pool, &shared))
            .await
        else {
            return;
        };

        if let Err(error) = published {
            tracing::debug!(
                %error,
                "a hint could not be published; nodes find the tasks at their next look"
            );
            tokio::time::sleep(RECONNECT).await;
        }
    }
}

/// Sends hints until an error. The connection does not wait for the disk: a lost hint costs one
/// poll.
async fn send_notifications(pool: &PgPool, shared: &Shared) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect_with(&pool.connect_options()).await?;
    sqlx::query("SELECT set_config('synchronous_commit', 'off', false)")
        .execute(&mut connection)
        .await?;

    loop {
        if let Err(rest) = shared.take_turn(Instant::now()) {
            // Then send in any case: a submit that took the turn may still fail.
            tokio::time::sleep(rest).await;
            *shared.published_at() = Some(Instant::now());
        }

        sqlx::query("SELECT pg_notify($1, '')")
            .bind(CHANNEL)
            .execute(&mut connection)
            .await?;
        shared.to_notify.notified().await;
    }
}

async fn listen(pool: PgPool, shared: Arc<Shared>) {
    loop {
        let Ok(received) = pool.close_event().do_until(receive(&pool, &shared)).await else {
            return;
        };
        if let Err(error) = received {
            tracing::debug!(%error, "listening for notifications failed; the node polls");
        }
        tokio::time::sleep(RECONNECT).await;
    }
}

async fn receive(pool: &PgPool, shared: &Shared) -> Result<(), sqlx::Error> {
    let own = PgPoolOptions::new()
        .max_connections(1)
        .connect_with((*pool.connect_options()).clone())
        .await?;
    let mut listener = PgListener::connect_with(&own).await?;

    listener.listen(CHANNEL).await?;
    // Hints from before LISTEN are lost, so look once.
    shared.receive(None);
    loop {
        // `None` means that the connection was replaced, so a hint may be lost.
        let hint = listener.try_recv().await?;
        shared.receive(hint.and_then(|hint| named(hint.payload())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_that_was_published_rests() {
        let shared = Shared::default();
        let now = Instant::now();
        assert_eq!(shared.take_turn(now), Ok(()));
        assert_eq!(shared.take_turn(now), Err(REST));
        assert_eq!(shared.take_turn(now + REST / 2), Err(REST / 2));
        assert_eq!(shared.take_turn(now + REST), Ok(()));
        assert_eq!(shared.take_turn(now + REST), Err(REST));
    }

    #[test]
    fn a_notification_names_its_task_or_nothing() {
        let name = HintedTask {
            task_id: TaskId(uuid::Uuid::from_u128(7)),
            queue: record::queue_name("q"),
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
    fn names_are_given_while_every_notification_has_one() {
        let name = |number| HintedTask {
            task_id: TaskId(uuid::Uuid::from_u128(number)),
            queue: record::queue_name("q"),
            task_type: "t".to_owned(),
        };
        let mut since = HintedSince::default();

        since.add(Some(name(1)));
        since.add(Some(name(2)));
        assert_eq!(
            (since.take(), since.take()),
            (Some(vec![name(1), name(2)]), None)
        );

        for hints in [
            vec![Some(name(1)), None],
            vec![None, Some(name(1))],
            vec![Some(name(1)); MOST_NAMED + 1],
        ] {
            hints.into_iter().for_each(|hint| since.add(hint));
            assert_eq!((since.take(), since.take()), (Some(Vec::new()), None));
        }
    }
}
