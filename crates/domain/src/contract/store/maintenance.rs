//! What background work asks of the store.

use async_trait::async_trait;

use crate::{
    artifact::{ArtifactRecord, Swept},
    error::StoreError,
    filter::{Page, Retention},
    ids::{NodeId, TaskId},
    node::MaintenanceLease,
    task::TaskRecord,
};

/// Maintenance jobs: their leases, and what they clean up. One node at a time does a job.
#[async_trait]
pub trait Maintenance: Send + Sync {
    /// Takes or renews the lease of a maintenance job for `ttl_ms`; `None` while another node has
    /// it.
    async fn take_maintenance_lease(
        &self,
        job: &str,
        node: NodeId,
        ttl_ms: u64,
    ) -> Result<Option<MaintenanceLease>, StoreError>;

    /// The tasks that [`Self::prune_tasks`] would remove, from `after` on, for export before they
    /// are removed.
    async fn list_prunable(
        &self,
        keep: &Retention,
        after: Option<TaskId>,
        limit: usize,
    ) -> Result<Page<TaskRecord>, StoreError>;

    /// Removes those of the tasks that are old enough, with all below them. Answers with how many
    /// rows were removed. Their files are to be swept at once.
    async fn prune_tasks(&self, keep: &Retention, ids: &[TaskId]) -> Result<usize, StoreError>;

    /// Removes idempotency keys that have expired, at most `limit`.
    async fn prune_idempotency_keys(&self, limit: usize) -> Result<usize, StoreError>;

    /// Files that are to be deleted now, published or not, the longest due first.
    async fn list_expired_artifacts(&self, limit: usize)
    -> Result<Vec<ArtifactRecord>, StoreError>;

    /// Records which files were deleted. Those that were not are counted and due again after
    /// `retry_ms`. The record of a deleted file is removed with its task.
    async fn note_sweep(&self, swept: &[Swept], retry_ms: u64) -> Result<(), StoreError>;

    /// Folds appended count deltas into their sums. Answers with how many deltas were folded.
    async fn compact_counts(&self, limit: usize) -> Result<usize, StoreError>;
}
