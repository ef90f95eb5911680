//! Copies the progress of tasks that run here into a shared progress cache.
//!
//! A handler that reports never waits for the cache. Reports are written in batches, and only the
//! newest one of each task. While the cache is down they wait, and the cache gets what is newest
//! when it is back.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{
    TaskId,
    contract::{
        ProgressCache,
        progress_cache::{CacheError, LiveProgress},
    },
};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

/// The pause before each batch: reports that arrive in it share the batch.
const BATCH_PAUSE: Duration = Duration::from_millis(20);
/// The pause before the next try while the cache is down.
const PAUSE_WHILE_DOWN: Duration = Duration::from_secs(1);
/// Tasks in one batch: some hundred kilobytes, unless handlers report documents.
const BATCH: usize = 1_000;
/// Ended tasks that wait to be removed from the cache. Beyond it the cache's own expiry removes
/// them.
const MAX_ENDED: usize = 10_000;

/// Writes to a shared cache for as long as it lives.
#[derive(Debug)]
pub(crate) struct CacheWriter {
    queue: Arc<Queue>,
    _writing: AbortOnDropHandle<()>,
}

/// What is not in the cache yet: at most one report per task that runs here, and [`MAX_ENDED`].
#[derive(Debug, Default)]
struct Queue {
    /// Never held across an await: a handler that reports does not wait for the cache.
    unwritten: Mutex<Unwritten>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Unwritten {
    reports: HashMap<TaskId, LiveProgress>,
    ended: HashSet<TaskId>,
}

impl CacheWriter {
    /// Starts to write to `cache`. Needs a runtime.
    pub(crate) fn start(cache: Arc<dyn ProgressCache>) -> Self {
        let queue = Arc::new(Queue::default());
        // In a task of its own, so that no handler waits for the cache. It ends with this writer.
        let writing = tokio::spawn(Arc::clone(&queue).write(cache));
        Self {
            queue,
            _writing: AbortOnDropHandle::new(writing),
        }
    }

    pub(crate) fn report(&self, task: TaskId, report: LiveProgress) {
        let mut unwritten = self.queue.unwritten.lock();
        unwritten.ended.remove(&task);
        unwritten.reports.insert(task, report);
        drop(unwritten);

        self.queue.wake.notify_one();
    }

    /// The task no longer runs here.
    pub(crate) fn forget(&self, task: TaskId) {
        let mut unwritten = self.queue.unwritten.lock();
        unwritten.reports.remove(&task);
        if unwritten.ended.len() < MAX_ENDED {
            unwritten.ended.insert(task);
        }
        drop(unwritten);

        self.queue.wake.notify_one();
    }
}

impl Queue {
    /// Writes batches, for ever.
    async fn write(self: Arc<Self>, cache: Arc<dyn ProgressCache>) {
        loop {
            self.wake.notified().await;

            let mut pause = BATCH_PAUSE;
            while self.has_more() {
                tokio::time::sleep(pause).await;
                pause = match self.write_batch(&*cache).await {
                    Ok(()) => BATCH_PAUSE,
                    Err(error) => {
                        tracing::debug!(%error, "writing progress to the cache failed; retrying");
                        PAUSE_WHILE_DOWN
                    }
                };
            }
        }
    }

    fn has_more(&self) -> bool {
        let unwritten = self.unwritten.lock();
        !unwritten.reports.is_empty() || !unwritten.ended.is_empty()
    }

    async fn write_batch(&self, cache: &dyn ProgressCache) -> Result<(), CacheError> {
        let (reports, ended) = self.take_batch();

        let written = match cache.put(&reports).await {
            Ok(()) => cache.forget(&ended).await,
            Err(error) => Err(error),
        };
        if written.is_err() {
            self.put_back(reports, ended);
        }

        written
    }

    fn take_batch(&self) -> (Vec<(TaskId, LiveProgress)>, Vec<TaskId>) {
        let mut unwritten = self.unwritten.lock();
        let tasks: Vec<TaskId> = unwritten.reports.keys().take(BATCH).copied().collect();

        let mut reports = Vec::with_capacity(tasks.len());
        for task in tasks {
            if let Some(report) = unwritten.reports.remove(&task) {
                reports.push((task, report));
            }
        }

        (reports, unwritten.ended.drain().collect())
    }

    /// Puts a batch back that was not written. Reports and ends that arrived in the meantime are
    /// newer and stay.
    fn put_back(&self, reports: Vec<(TaskId, LiveProgress)>, ended: Vec<TaskId>) {
        let mut unwritten = self.unwritten.lock();
        for (task, report) in reports {
            if !unwritten.ended.contains(&task) {
                unwritten.reports.entry(task).or_insert(report);
            }
        }

        for task in ended {
            if unwritten.ended.len() < MAX_ENDED && !unwritten.reports.contains_key(&task) {
                unwritten.ended.insert(task);
            }
        }
    }
}
