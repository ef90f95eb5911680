//! Reading tasks and what belongs to them.

use async_trait::async_trait;

use super::Access;
use crate::{
    artifact::ArtifactRecord,
    attempt::Attempt,
    error::StoreError,
    filter::{Page, PageRequest, TaskFilter},
    ids::{ArtifactId, TaskId},
    log::LogPage,
    statistics::{CountFilter, TaskCount},
    task::TaskRecord,
    time::Timestamp,
};

/// Reads of tasks, their attempts, logs, files and counts.
#[async_trait]
pub trait TaskReads: Send + Sync {
    /// The time by which this store takes all decisions.
    async fn now(&self) -> Result<Timestamp, StoreError>;

    async fn get_task(&self, access: &Access, id: TaskId) -> Result<TaskRecord, StoreError>;

    async fn list_tasks(
        &self,
        access: &Access,
        filter: &TaskFilter,
        page: &PageRequest,
    ) -> Result<Page<TaskRecord>, StoreError>;

    /// The attempts of a task, the first one first: those after number `after`, at most `limit`.
    async fn list_attempts(
        &self,
        access: &Access,
        id: TaskId,
        after: u32,
        limit: usize,
    ) -> Result<Vec<Attempt>, StoreError>;

    /// The log lines of a task, oldest first: those after number `after`, at most `limit`. A later
    /// line has a higher number than every earlier one, so a reader that continues after the last
    /// number misses no line that the store still has.
    async fn list_logs(
        &self,
        access: &Access,
        id: TaskId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<LogPage, StoreError>;

    /// The published files of a task, the oldest first: those of attempts whose result was
    /// accepted.
    async fn list_artifacts(
        &self,
        access: &Access,
        id: TaskId,
    ) -> Result<Vec<ArtifactRecord>, StoreError>;

    /// A published file. The caller is not checked here: the signature of the file's URL is what
    /// authorises a download.
    async fn get_artifact(&self, id: ArtifactId) -> Result<ArtifactRecord, StoreError>;

    /// Counts of the present, or statistics of past hours; sorted by key.
    async fn read_task_counts(&self, filter: &CountFilter) -> Result<Vec<TaskCount>, StoreError>;
}
