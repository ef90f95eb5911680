//! The newest progress of tasks, wherever they run.

use std::time::Duration;

use longhaul_domain::{
    Status, TaskId, TaskRecord,
    contract::progress_cache::{CacheError, LiveProgress},
};
use tokio::time::timeout;

use crate::Engine;

/// A list does not wait for a cache longer than this: the store's progress is some seconds old at
/// most.
const CACHE_TIMEOUT: Duration = Duration::from_millis(150);

impl Engine {
    /// The newest progress of each task, in order; `None` where the store's own is as good. The
    /// cache is asked once, for all tasks that run in other processes.
    pub async fn live_progress(&self, tasks: &[TaskRecord]) -> Vec<Option<serde_json::Value>> {
        let mut newest: Vec<_> = tasks.iter().map(|task| self.progress_of(task)).collect();

        let is_elsewhere = |(index, task): &(usize, &TaskRecord)| {
            newest[*index].is_none() && task.status == Status::Running
        };
        let elsewhere: Vec<(usize, &TaskRecord)> =
            tasks.iter().enumerate().filter(is_elsewhere).collect();
        let ids: Vec<TaskId> = elsewhere.iter().map(|(_, task)| task.id).collect();

        let cached = self.read_cache(&ids).await;
        for ((index, task), cached) in elsewhere.into_iter().zip(cached) {
            // Progress of an earlier attempt says nothing about this one.
            newest[index] = match cached {
                Some(cached) if cached.attempt >= task.attempt => Some(cached.progress),
                Some(_) | None => None,
            };
        }

        newest
    }

    /// The progress of a task that runs in this process.
    fn progress_of(&self, task: &TaskRecord) -> Option<serde_json::Value> {
        if task.status.is_ended() {
            return None;
        }

        self.live.progress_since(task.id, task.attempt)
    }

    async fn read_cache(&self, ids: &[TaskId]) -> Vec<Option<LiveProgress>> {
        let Some(cache) = &self.progress_cache else {
            return Vec::new();
        };
        if ids.is_empty() {
            return Vec::new();
        }

        let answer = timeout(CACHE_TIMEOUT, cache.get(ids)).await;
        let answer = answer
            .unwrap_or_else(|_| Err(CacheError(format!("no answer within {CACHE_TIMEOUT:?}"))));
        answer.unwrap_or_else(|error| {
            tracing::debug!(
                %error,
                "reading the progress cache failed; the store's progress is shown"
            );
            Vec::new()
        })
    }
}
