//! The client: submits the plan at its pace, repeats what it does not know, cancels some tasks and reads some.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering},
};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    door::{Answer, Door, Request},
    fault::Deeds,
    history::{Asked, History},
    plan::Item,
};

/// Tasks that may be open before the client waits: what is behind at the end of the faults must be little enough to
/// be done within the time after which it counts as stuck.
const OPEN: i64 = 500;
/// How long the client waits before it asks again what it does not know.
const AGAIN: Duration = Duration::from_millis(150);

/// What the client and those who watch it share.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    pub(crate) acknowledged: AtomicUsize,
    /// Tasks that have not ended, as they were last counted.
    pub(crate) open: AtomicI64,
    /// Whether nobody could count them when last asked.
    pub(crate) is_away: AtomicBool,
    /// Says sooner than a question without an answer that the database is away.
    pub(crate) deeds: Deeds,
}

impl Pace {
    /// Whether there is too much to do already, or nobody to do it. What was asked before an outage is asked through it;
    /// but the time of a run is time in which something can happen.
    fn must_wait(&self) -> bool {
        let is_away = self.is_away.load(Ordering::Relaxed) || self.deeds.is_database_away();
        is_away || self.open.load(Ordering::Relaxed) > OPEN
    }
}

/// Submits everything and follows it. Answers once the last question is answered.
pub(crate) async fn run(
    door: Door,
    history: Arc<History>,
    items: Vec<Item>,
    moments: Vec<Duration>,
    pace: Arc<Pace>,
) -> JoinSet<()> {
    let mut stories = JoinSet::new();
    let mut started = Instant::now();
    for (n, (item, moment)) in items.into_iter().zip(moments).enumerate() {
        tokio::time::sleep_until(started + moment).await;
        let before = Instant::now();
        while pace.must_wait() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        started += before.elapsed();
        stories.spawn(follow(
            door.clone(),
            Arc::clone(&history),
            n,
            item,
            Arc::clone(&pace),
        ));
        while stories.try_join_next().is_some() {}
    }
    stories
}

/// One item from its submit to the last question about it.
async fn follow(door: Door, history: Arc<History>, n: usize, item: Item, pace: Arc<Pace>) {
    let submit = || Request::Submit(Box::new(item.clone()));
    let Some(id) = submit_until_known(&door, &history, n, submit).await else {
        return;
    };
    pace.acknowledged.fetch_add(1, Ordering::Relaxed);
    if item.repeats {
        history.ask(n, &door, Asked::Submit, submit()).await;
    }
    let cancel = async {
        if let Some(ms) = item.cancel_after_ms {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            cancel_until_known(&door, &history, n, id).await;
        }
    };
    let read = async {
        for ms in &item.reads_after_ms {
            tokio::time::sleep(Duration::from_millis(*ms)).await;
            history.ask(n, &door, Asked::Read, Request::Read(id)).await;
        }
    };
    tokio::join!(cancel, read);
}

/// The same request with the same key until somebody has answered it.
async fn submit_until_known(
    door: &Door,
    history: &History,
    n: usize,
    submit: impl Fn() -> Request,
) -> Option<Uuid> {
    loop {
        let answer = history.ask(n, door, Asked::Submit, submit()).await;
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

async fn cancel_until_known(door: &Door, history: &History, n: usize, id: Uuid) {
    while let Answer::Unknown(_) = history
        .ask(n, door, Asked::Cancel, Request::Cancel(id))
        .await
    {
        tokio::time::sleep(AGAIN).await;
    }
}
