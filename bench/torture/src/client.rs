//! The client: submits the planned tasks, repeats requests with unknown results, cancels some tasks
//! and reads some.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering},
};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    fault::FaultLog,
    gateway::{Answer, Gateway, Request},
    history::{Asked, History},
    plan::Item,
};

/// The most open tasks before the client waits. The tasks left at the end of the faults must be few
/// enough to end before they count as stuck.
const OPEN: i64 = 500;
/// How long the client waits before it repeats a request with an unknown result.
const AGAIN: Duration = Duration::from_millis(150);

/// What the client shares with the nemesis and the display.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    pub(crate) acknowledged: AtomicUsize,
    /// The last count of open tasks.
    pub(crate) open: AtomicI64,
    /// Whether the last count failed.
    pub(crate) is_down: AtomicBool,
    /// Shows sooner than a missing answer that the database is down.
    pub(crate) fault_log: FaultLog,
}

impl Pace {
    /// Whether too many tasks are open or the database is down. Pending requests continue through
    /// an outage, but the schedule stops, so that a run has its full time with the database.
    fn must_wait(&self) -> bool {
        let is_down = self.is_down.load(Ordering::Relaxed) || self.fault_log.is_database_down();
        is_down || self.open.load(Ordering::Relaxed) > OPEN
    }
}

/// Submits all items. Returns the tasks that still follow their items.
pub(crate) async fn run(
    gateway: Gateway,
    history: Arc<History>,
    items: Vec<Item>,
    submit_times: Vec<Duration>,
    pace: Arc<Pace>,
) -> JoinSet<()> {
    let mut following = JoinSet::new();
    let mut started = Instant::now();
    for (n, (item, moment)) in items.into_iter().zip(submit_times).enumerate() {
        tokio::time::sleep_until(started + moment).await;
        let before = Instant::now();
        while pace.must_wait() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }

        started += before.elapsed();
        // The plan goes on while earlier items are followed.
        following.spawn(follow(
            gateway.clone(),
            Arc::clone(&history),
            n,
            item,
            Arc::clone(&pace),
        ));

        while following.try_join_next().is_some() {}
    }

    following
}

/// Submits an item, cancels it and reads it as planned.
async fn follow(gateway: Gateway, history: Arc<History>, n: usize, item: Item, pace: Arc<Pace>) {
    let submit = || Request::Submit(Box::new(item.clone()));
    let Some(id) = submit_until_known(&gateway, &history, n, submit).await else {
        return;
    };
    pace.acknowledged.fetch_add(1, Ordering::Relaxed);

    if item.repeats {
        history.ask(n, &gateway, Asked::Submit, submit()).await;
    }

    let cancel = async {
        if let Some(ms) = item.cancel_after_ms {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            cancel_until_known(&gateway, &history, n, id).await;
        }
    };

    let read = async {
        for ms in &item.reads_after_ms {
            tokio::time::sleep(Duration::from_millis(*ms)).await;
            history
                .ask(n, &gateway, Asked::Read, Request::Read(id))
                .await;
        }
    };

    tokio::join!(cancel, read);
}

/// Repeats the submit with the same key until there is an answer.
async fn submit_until_known(
    gateway: &Gateway,
    history: &History,
    n: usize,
    submit: impl Fn() -> Request,
) -> Option<Uuid> {
    loop {
        let answer = history.ask(n, gateway, Asked::Submit, submit()).await;
        if let Answer::Submitted(id) = answer {
            return Some(id);
        }
        if !matches!(answer, Answer::Unknown(_)) {
            // The checker finds the refusal in the history.
            return None;
        }

        tokio::time::sleep(AGAIN).await;
    }
}

async fn cancel_until_known(gateway: &Gateway, history: &History, n: usize, id: Uuid) {
    while let Answer::Unknown(_) = history
        .ask(n, gateway, Asked::Cancel, Request::Cancel(id))
        .await
    {
        tokio::time::sleep(AGAIN).await;
    }
}
