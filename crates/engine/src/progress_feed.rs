//! Tells a progress cache that others read how far the tasks are that run here (R38).
//!
//! A handler that reports waits for nobody: its report waits here for the next batch, and of each task only the newest
//! does. A cache that is away gets what is newest then once it is back.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_domain::{
    TaskId,
    contract::{
        ProgressCache,
        progress_cache::{CacheError, HotProgress},
    },
};
use tokio::sync::Notify;

/// Between two batches: reports that come in it share the next one.
const REST: Duration = Duration::from_millis(20);
/// Between two tries while the cache is away.
const REST_WHILE_AWAY: Duration = Duration::from_secs(1);
/// Tasks in one batch: some hundred kilobytes at most, unless somebody reports documents.
const BATCH: usize = 1_000;
/// Ends that wait to be told. Beyond it they are left to the cache's own forgetting.
const ENDS: usize = 10_000;

#[derive(Debug, Default)]
struct Waiting {
    newest: HashMap<TaskId, HotProgress>,
    ended: HashSet<TaskId>,
}

/// What a shared cache is still to be told. Holds at most what runs here, and [`ENDS`].
#[derive(Debug, Default)]
pub(crate) struct ProgressFeed {
    waiting: Mutex<Waiting>,
    wake: Notify,
}

impl ProgressFeed {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn report(&self, task: TaskId, report: HotProgress) {
        let mut waiting = self.waiting();
        waiting.ended.remove(&task);
        waiting.newest.insert(task, report);
        drop(waiting);
        self.wake.notify_one();
    }

    /// The task no longer runs here.
    pub(crate) fn forget(&self, task: TaskId) {
        let mut waiting = self.waiting();
        waiting.newest.remove(&task);
        if waiting.ended.len() < ENDS {
            waiting.ended.insert(task);
        }
        drop(waiting);
        self.wake.notify_one();
    }

    /// Feeds the cache, for ever.
    pub(crate) async fn run(self: Arc<Self>, cache: Arc<dyn ProgressCache>) {
        loop {
            self.wake.notified().await;
            let mut rest = REST;
            while self.has_more() {
                tokio::time::sleep(rest).await;
                rest = match self.tell(&*cache).await {
                    Ok(()) => REST,
                    Err(error) => {
                        tracing::debug!(%error, "progress waits until the cache is back");
                        REST_WHILE_AWAY
                    }
                };
            }
        }
    }

    fn has_more(&self) -> bool {
        let waiting = self.waiting();
        !waiting.newest.is_empty() || !waiting.ended.is_empty()
    }

    async fn tell(&self, cache: &dyn ProgressCache) -> Result<(), CacheError> {
        let (reports, ended) = self.take();
        let told = match cache.put(&reports).await {
            Ok(()) => cache.forget(&ended).await,
            Err(error) => Err(error),
        };
        if told.is_err() {
            self.put_back(reports, ended);
        }
        told
    }

    fn take(&self) -> (Vec<(TaskId, HotProgress)>, Vec<TaskId>) {
        let mut waiting = self.waiting();
        let tasks: Vec<TaskId> = waiting.newest.keys().take(BATCH).copied().collect();
        let reports = tasks
            .into_iter()
            .filter_map(|task| Some((task, waiting.newest.remove(&task)?)))
            .collect();
        (reports, waiting.ended.drain().collect())
    }

    /// What came meanwhile is newer.
    fn put_back(&self, reports: Vec<(TaskId, HotProgress)>, ended: Vec<TaskId>) {
        let mut waiting = self.waiting();
        for (task, report) in reports {
            if !waiting.ended.contains(&task) {
                waiting.newest.entry(task).or_insert(report);
            }
        }
        for task in ended {
            if waiting.ended.len() < ENDS && !waiting.newest.contains_key(&task) {
                waiting.ended.insert(task);
            }
        }
    }
}
