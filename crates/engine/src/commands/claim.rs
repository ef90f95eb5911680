//! Claim: a node takes due tasks. The node publishes the start of each when its handler starts.

use longhaul_domain::{
    LogLine, StoreError, TaskRecord,
    contract::store::{ClaimNamed, ClaimRequest, Verdict},
};

use crate::Engine;

impl Engine {
    /// Claims due tasks of the queues and types of the request.
    pub async fn claim(&self, request: &ClaimRequest) -> Result<Vec<TaskRecord>, StoreError> {
        self.store.claim_tasks(request).await
    }

    /// Claims tasks by their ids, those of hints.
    pub async fn claim_named(&self, request: &ClaimNamed) -> Result<Vec<TaskRecord>, StoreError> {
        self.store.claim_named(request).await
    }

    /// Claims tasks that a rescue has reserved for the host of the node.
    pub async fn claim_host_affinity(
        &self,
        request: &ClaimRequest,
    ) -> Result<Vec<TaskRecord>, StoreError> {
        self.store.claim_host_affinity(request).await
    }

    /// Stores log lines of running attempts. They change no task, so no event is published.
    pub async fn append_logs(&self, lines: &[LogLine]) -> Result<Vec<Verdict>, StoreError> {
        self.store.append_logs(lines).await
    }
}
