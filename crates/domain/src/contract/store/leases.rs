//! Nodes and the leases of the tasks that they run.

use async_trait::async_trait;

use super::Verdict;
use crate::{
    error::StoreError,
    ids::{NodeId, TaskId},
    node::{NodeRecord, Serves},
    task::Lease,
};

/// Nodes: their registration, heartbeats and leases.
#[async_trait]
pub trait Leases: Send + Sync {
    async fn register_node(
        &self,
        id: NodeId,
        name: &str,
        host: &str,
        serves: Option<&Serves>,
    ) -> Result<(), StoreError>;

    /// Renews every lease of the node, and answers with those of `leases` that are gone. A node
    /// that was declared dead gets [`StoreError::NodeLost`].
    async fn heartbeat_node(
        &self,
        id: NodeId,
        leases: &[Lease],
    ) -> Result<Vec<(Lease, Verdict)>, StoreError>;

    /// Hands back the tasks that run on a node and that it does not know of, because the answer to
    /// its claim was lost. They return to their queue as if the node had handed them back. Answers
    /// with their ids, oldest first, at most
    /// [`bounds::MAINTENANCE_BATCH`](crate::bounds::MAINTENANCE_BATCH) of them.
    ///
    /// `known` is every lease that the node still works with, including those whose last report is
    /// not answered yet: what it leaves out runs again elsewhere. A node that has more than fits
    /// into one call must not make it. `older_than_ms` is longer than the node waits for the answer
    /// to a claim. A node that shuts down, and no longer claims, runs or reports anything, passes
    /// an empty list and 0.
    async fn hand_back_strays(
        &self,
        node: NodeId,
        known: &[Lease],
        older_than_ms: u64,
    ) -> Result<Vec<TaskId>, StoreError>;

    /// Removes a node that has shut down. Tasks that it still ran count as crashed.
    async fn retire_node(&self, id: NodeId) -> Result<(), StoreError>;

    /// Declares every node but one dead, and their maintenance leases free. Only the sole process
    /// on a store may do so.
    async fn declare_others_dead(&self, survivor: NodeId) -> Result<(), StoreError>;

    async fn list_nodes(&self) -> Result<Vec<NodeRecord>, StoreError>;
}
