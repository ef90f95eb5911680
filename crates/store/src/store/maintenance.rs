//! Store calls of the background maintenance.

use async_trait::async_trait;
use longhaul_domain::{
    NodeId, StoreError, TaskId, TaskRecord,
    artifact::{ArtifactRecord, Swept},
    contract::store::Maintenance,
    filter::{Page, Retention},
    node::MaintenanceLease,
};

use super::SqlStore;
use crate::operations::{
    artifacts::{ListExpiredArtifacts, NoteSweep},
    maintenance::TakeMaintenanceLease,
    prune::{ListPrunable, PruneIdempotencyKeys, PruneTasks},
    task_counts::CompactCounts,
};

#[async_trait]
impl Maintenance for SqlStore {
    async fn take_maintenance_lease(
        &self,
        job: &str,
        node: NodeId,
        ttl_ms: u64,
    ) -> Result<Option<MaintenanceLease>, StoreError> {
        let job = job.to_owned();
        let operation = TakeMaintenanceLease { job, node, ttl_ms };
        self.run("take_maintenance_lease", operation).await
    }

    async fn list_prunable(
        &self,
        keep: &Retention,
        after: Option<TaskId>,
        limit: usize,
    ) -> Result<Page<TaskRecord>, StoreError> {
        let keep = *keep;
        let operation = ListPrunable { keep, after, limit };
        self.run("list_prunable", operation).await
    }

    async fn prune_tasks(&self, keep: &Retention, ids: &[TaskId]) -> Result<usize, StoreError> {
        let operation = PruneTasks {
            keep: *keep,
            ids: ids.to_vec(),
        };
        self.run("prune_tasks", operation).await
    }

    async fn prune_idempotency_keys(&self, limit: usize) -> Result<usize, StoreError> {
        let operation = PruneIdempotencyKeys { limit };
        self.run("prune_idempotency_keys", operation).await
    }

    async fn list_expired_artifacts(
        &self,
        limit: usize,
    ) -> Result<Vec<ArtifactRecord>, StoreError> {
        let operation = ListExpiredArtifacts { limit };
        self.run("list_expired_artifacts", operation).await
    }

    async fn note_sweep(&self, swept: &[Swept], retry_ms: u64) -> Result<(), StoreError> {
        let swept = swept.to_vec();
        self.run("note_sweep", NoteSweep { swept, retry_ms }).await
    }

    async fn compact_counts(&self, limit: usize) -> Result<usize, StoreError> {
        self.run("compact_counts", CompactCounts { limit }).await
    }
}
