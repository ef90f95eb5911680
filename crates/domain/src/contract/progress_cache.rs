//! The progress cache: how far each running task is now, before the store has it (R37, R38).
//!
//! It holds nothing that the store cannot rebuild. What is not asked for and not reported for a while is forgotten.

use async_trait::async_trait;

use crate::ids::TaskId;

/// The newest progress of a task.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HotProgress {
    pub attempt: u32,
    /// The number of the report in its attempt.
    pub sequence: u64,
    pub progress: serde_json::Value,
}

impl HotProgress {
    /// What decides which of two is newer.
    pub const fn age(&self) -> (u32, u64) {
        (self.attempt, self.sequence)
    }
}

/// Why no answer can be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the progress cache is unavailable: {0}")]
pub struct CacheError(pub String);

/// Newest progress by task.
#[async_trait]
pub trait ProgressCache: Send + Sync + std::fmt::Debug {
    /// Keeps each report unless a newer one of its task is kept already.
    async fn put(&self, reports: &[(TaskId, HotProgress)]) -> Result<(), CacheError>;
    /// The newest of each task, in order.
    async fn get(&self, tasks: &[TaskId]) -> Result<Vec<Option<HotProgress>>, CacheError>;
    /// Forgets tasks that no longer run.
    async fn forget(&self, tasks: &[TaskId]) -> Result<(), CacheError>;
    /// Whether other processes read it. Then what runs here is told to it, and not only what others report.
    fn is_shared(&self) -> bool;
}
