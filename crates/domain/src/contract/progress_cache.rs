//! The progress cache: the newest progress of each running task, before the store has it.
//!
//! It has nothing that the store cannot rebuild. Entries that are neither read nor reported for a
//! while expire.

use async_trait::async_trait;

use crate::ids::TaskId;

/// The newest progress of a task.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LiveProgress {
    pub attempt: u32,
    /// The number of the report in its attempt.
    pub sequence: u64,
    pub progress: serde_json::Value,
}

impl LiveProgress {
    /// Orders reports: the greater one is newer.
    pub const fn age(&self) -> (u32, u64) {
        (self.attempt, self.sequence)
    }
}

/// The cache cannot be reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the progress cache is unavailable: {0}")]
pub struct CacheError(pub String);

/// Newest progress by task.
#[async_trait]
pub trait ProgressCache: Send + Sync + std::fmt::Debug {
    /// Stores each report unless a newer one of its task is stored.
    async fn put(&self, reports: &[(TaskId, LiveProgress)]) -> Result<(), CacheError>;
    /// The newest report of each task, in order.
    async fn get(&self, tasks: &[TaskId]) -> Result<Vec<Option<LiveProgress>>, CacheError>;
    /// Forgets tasks that no longer run.
    async fn forget(&self, tasks: &[TaskId]) -> Result<(), CacheError>;
    /// Whether other processes read it. Then reports of local tasks are written to it too.
    fn is_shared(&self) -> bool;
}
