//! The attempts whose handlers run on this node.

use std::collections::HashMap;
use std::sync::Arc;

use longhaul_domain::{Lease, TaskId};
use longhaul_sdk::StopReason;
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio_util::task::TaskTracker;

use crate::attempt::RunningAttempt;

/// See the module.
#[derive(Debug)]
pub(crate) struct Attempts {
    by_task: Mutex<HashMap<TaskId, Entry>>,
    /// The handlers, with what follows them. Closed from the start, so that waiting for it ends
    /// when none runs.
    handlers: TaskTracker,
}

#[derive(Debug)]
struct Entry {
    attempt: Arc<RunningAttempt>,
    /// Drops the handler where it is.
    abort: AbortHandle,
}

impl Default for Attempts {
    fn default() -> Self {
        let handlers = TaskTracker::new();
        handlers.close();
        Self {
            by_task: Mutex::default(),
            handlers,
        }
    }
}

impl Attempts {
    /// Runs the attempt in a task of its own. A later attempt of the same task replaces it here.
    pub(crate) fn spawn(
        &self,
        attempt: Arc<RunningAttempt>,
        run: impl Future<Output = ()> + Send + 'static,
    ) {
        // Under the lock: the attempt must be here before it ends and removes itself.
        let mut by_task = self.by_task.lock();
        let abort = self.handlers.spawn(run).abort_handle();
        by_task.insert(attempt.task.id, Entry { attempt, abort });
    }

    /// Removes an attempt that has ended, unless a later attempt of its task has replaced it.
    pub(crate) fn remove(&self, ended: &RunningAttempt) {
        let id = ended.task.id;
        // Compared and removed under one lock: a later attempt may come in between.
        let mut by_task = self.by_task.lock();
        let is_same = |entry: &Entry| entry.attempt.lease == ended.lease;
        if by_task.get(&id).is_some_and(is_same) {
            by_task.remove(&id);
        }
    }

    /// Asks the handler of this very attempt to stop, if it runs here.
    pub(crate) fn stop(&self, lease: &Lease, reason: StopReason) {
        // Stopping only sets a flag and a token, so it may happen under the lock.
        let by_task = self.by_task.lock();
        if let Some(entry) = by_task.get(&lease.task_id)
            && entry.attempt.lease == *lease
        {
            entry.attempt.stop(reason);
        }
    }

    pub(crate) fn stop_all(&self, reason: StopReason) {
        // Under the lock no attempt is added, so that none is missed.
        for entry in self.by_task.lock().values() {
            entry.attempt.stop(reason);
        }
    }

    /// Drops all handlers where they are.
    pub(crate) fn abort_all(&self) {
        // An abort only marks the task: no handler is dropped under the lock.
        for (_, entry) in self.by_task.lock().drain() {
            entry.abort.abort();
            // A blocking handler cannot be dropped. It learns of the stop when it next asks.
            entry.attempt.stop(StopReason::Lost);
        }
    }

    /// Waits until no handler runs.
    pub(crate) async fn wait(&self) {
        self.handlers.wait().await;
    }
}
