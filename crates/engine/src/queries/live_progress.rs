//! How far tasks are now, wherever they run (R38).

use std::time::Duration;

use longhaul_domain::{
    Status, Task, TaskId,
    contract::progress_cache::{CacheError, HotProgress},
};

use crate::Engine;

/// A list must not wait for a cache: what the store has is some seconds old at most.
const ANSWER_WITHIN: Duration = Duration::from_millis(150);

impl Engine {
    /// The newest progress of each task, in order; nothing where the store's own is as good. What runs in this process is
    /// known, and the cache is asked once for all others.
    pub async fn live_progress(&self, tasks: &[Task]) -> Vec<Option<serde_json::Value>> {
        let here = |task: &Task| {
            self.hot
                .progress_since(task.id, task.attempt)
                .filter(|_| !task.status.is_ended())
        };
        let mut newest: Vec<_> = tasks.iter().map(here).collect();
        let is_elsewhere = |(number, task): &(usize, &Task)| {
            newest[*number].is_none() && task.status == Status::Running
        };
        let elsewhere: Vec<(usize, &Task)> =
            tasks.iter().enumerate().filter(is_elsewhere).collect();
        let ids: Vec<TaskId> = elsewhere.iter().map(|(_, task)| task.id).collect();
        for ((number, task), found) in elsewhere.into_iter().zip(self.ask_cache(&ids).await) {
            // What an earlier attempt reported says nothing of this one.
            newest[number] = found
                .filter(|found| found.attempt >= task.attempt)
                .map(|found| found.progress);
        }
        newest
    }

    async fn ask_cache(&self, ids: &[TaskId]) -> Vec<Option<HotProgress>> {
        let Some(cache) = self.progress_cache.as_ref().filter(|_| !ids.is_empty()) else {
            return Vec::new();
        };
        let answer = tokio::time::timeout(ANSWER_WITHIN, cache.get(ids)).await;
        let answer = answer
            .unwrap_or_else(|_| Err(CacheError(format!("no answer within {ANSWER_WITHIN:?}"))));
        answer.unwrap_or_else(|error| {
            tracing::debug!(%error, "the progress that is shown is the store's");
            Vec::new()
        })
    }
}
