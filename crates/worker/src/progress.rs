//! Progress as handlers report it, and how it comes into the store: seen at once, written seldom (R37).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul_domain::{Json, Lease, TaskId};
use longhaul_engine::Engine;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::patience;

/// How often the progress of one task is written to the store.
const WRITE_EVERY: Duration = Duration::from_secs(5);

/// How far a task has come. A number is a percentage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// From 0 to 100.
    pub percent: f64,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub message: Option<String>,
    /// Whatever the type wants to show besides, as JSON.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub details: Option<serde_json::Value>,
}

impl Progress {
    /// So many percent, from 0 to 100.
    pub fn percent(percent: f64) -> Self {
        Self { percent: percent.clamp(0.0, 100.0), message: None, details: None }
    }

    /// So many of so many.
    pub fn of(done: usize, all: usize) -> Self {
        Self::percent(if all == 0 { 100.0 } else { done as f64 * 100.0 / all as f64 })
    }

    /// Adds a line for people.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// Adds a value of the type's own.
    #[must_use]
    pub fn details(mut self, details: &impl Serialize) -> Self {
        self.details = serde_json::to_value(details).ok();
        self
    }
}

impl From<u8> for Progress {
    fn from(percent: u8) -> Self {
        Self::percent(f64::from(percent))
    }
}

impl From<i32> for Progress {
    fn from(percent: i32) -> Self {
        Self::percent(f64::from(percent))
    }
}

impl From<f64> for Progress {
    fn from(percent: f64) -> Self {
        Self::percent(percent)
    }
}

/// How far the newest report of a task has come on its way to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Waiting,
    /// Handed to a write that has not answered yet.
    Sent,
    Written,
}

#[derive(Debug)]
struct Kept {
    lease: Lease,
    newest: Json,
    way: Way,
    is_full: bool,
    written_at: Option<Instant>,
}

/// The newest progress of every task that runs on this node, on its way to the store.
#[derive(Debug, Default)]
pub(crate) struct ProgressKeeper {
    kept: Mutex<HashMap<TaskId, Kept>>,
    /// One write at a time: an older report must not land after a newer one.
    writing: tokio::sync::Mutex<()>,
    pub(crate) wake: Notify,
}

impl ProgressKeeper {
    fn kept(&self) -> std::sync::MutexGuard<'_, HashMap<TaskId, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, lease: Lease, progress: Json, is_full: bool) {
        let mut kept = self.kept();
        let written_at = kept.get(&lease.task_id).filter(|before| before.lease == lease).and_then(|b| b.written_at);
        kept.insert(lease.task_id, Kept { lease, newest: progress, way: Way::Waiting, is_full, written_at });
        drop(kept);
        if is_full || written_at.is_none() {
            self.wake.notify_one();
        }
    }

    /// What is to be written now: what is due, and what has come to 100 %.
    fn due(&self, now: Instant) -> Vec<(Lease, Json)> {
        let mut due = Vec::new();
        for one in self.kept().values_mut() {
            let rested = one.written_at.is_none_or(|at| now.duration_since(at) >= WRITE_EVERY);
            let is_due = one.way == Way::Waiting && (one.is_full || rested);
            if is_due && due.len() < longhaul_domain::bounds::CLAIM_BATCH {
                one.way = Way::Sent;
                one.written_at = Some(now);
                due.push((one.lease, one.newest.clone()));
            }
        }
        due
    }

    /// Writes what is due. Progress is not the truth: what cannot be written now is written with the next.
    pub(crate) async fn write(&self, engine: &Engine) {
        let _turn = self.writing.lock().await;
        let due = self.due(Instant::now());
        if due.is_empty() {
            return;
        }
        let way = match patience::within(patience::WRITE, engine.save_progress(&due)).await {
            Ok(_) => Way::Written,
            Err(error) => {
                tracing::debug!(%error, "progress could not be written and waits for the next time");
                Way::Waiting
            }
        };
        let mut kept = self.kept();
        for (lease, _) in due {
            // What was reported meanwhile waits for its own write.
            if let Some(one) = kept.get_mut(&lease.task_id).filter(|one| one.lease == lease && one.way == Way::Sent) {
                one.way = way;
            }
        }
    }

    /// The task's attempt is about to be reported: a 100 % that is not known to be written goes first, after whatever is
    /// under way.
    pub(crate) async fn close(&self, engine: &Engine, lease: &Lease) {
        let is_owed = |one: &Kept| one.is_full && one.way != Way::Written;
        let of_lease = |one: &&Kept| one.lease == *lease;
        let owed = self.kept().get(&lease.task_id).filter(of_lease).is_some_and(is_owed);
        let _turn = if owed { Some(self.writing.lock().await) } else { None };
        let last = {
            let mut kept = self.kept();
            let is_same = kept.get(&lease.task_id).is_some_and(|one| of_lease(&one));
            if is_same { kept.remove(&lease.task_id) } else { None }
        };
        if let Some(one) = last.filter(is_owed)
            && let Err(error) =
                patience::within(patience::WRITE, engine.save_progress(&[(one.lease, one.newest)])).await
        {
            tracing::debug!(%error, "the last progress could not be written");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longhaul_domain::{
        NewTask, NodeId,
        contract::{
            Store as _,
            store::{Access, ClaimRequest},
        },
        event::OutboxPolicy,
    };
    use longhaul_testkit::{clock::TestClock, reference::MemoryStore};

    use super::*;
    use crate::quiet;

    fn json(text: &str) -> Json {
        Json::parse("progress", text).unwrap()
    }

    /// An engine with one task that runs, and its lease.
    async fn running() -> (Arc<Engine>, Lease) {
        let store = MemoryStore::new(TestClock::new(), OutboxPolicy::default());
        store.submit_task(NewTask::new("u-1", "t", "q", json("{}"))).await.unwrap();
        let node_id = NodeId(uuid::Uuid::nil());
        store.register_node(node_id, "n", "h").await.unwrap();
        let (queues, task_types) = (vec!["q".to_owned()], vec!["t".to_owned()]);
        let request = ClaimRequest { node_id, host: "h".to_owned(), queues, task_types, limit: 1 };
        let lease = store.claim_tasks(&request).await.unwrap()[0].lease().unwrap();
        (quiet::engine(store), lease)
    }

    #[tokio::test]
    async fn progress_is_due_at_first_then_every_five_seconds_and_at_the_full() {
        let (_, lease) = running().await;
        let (keeper, start) = (ProgressKeeper::default(), Instant::now());
        let due = |seconds| keeper.due(start + Duration::from_secs(seconds)).len();
        keeper.note(lease, json("1"), false);
        assert_eq!(due(0), 1);
        keeper.note(lease, json("2"), false);
        assert_eq!((due(4), due(5), due(9)), (0, 1, 0), "what has not changed is not written again");
        keeper.note(lease, json("3"), true);
        assert_eq!(due(6), 1);
    }

    #[tokio::test]
    async fn a_full_that_is_not_written_yet_goes_before_the_report() {
        let (engine, lease) = running().await;
        let keeper = ProgressKeeper::default();
        keeper.note(lease, json("100"), true);
        keeper.close(&engine, &lease).await;
        let task = engine.store.get_task(&Access::All, lease.task_id).await.unwrap();
        assert_eq!(task.progress, Some(json("100")));
    }

    #[tokio::test]
    async fn a_full_comes_after_whatever_is_under_way() {
        let (engine, lease) = running().await;
        let keeper = ProgressKeeper::default();
        keeper.note(lease, json("100"), true);
        let under_way = keeper.writing.lock().await;
        let mut closing = Box::pin(keeper.close(&engine, &lease));
        assert!(futures::poll!(closing.as_mut()).is_pending());
        engine.save_progress(&[(lease, json("1"))]).await.unwrap();
        drop(under_way);
        closing.await;
        let task = engine.store.get_task(&Access::All, lease.task_id).await.unwrap();
        assert_eq!(task.progress, Some(json("100")));
    }
}
