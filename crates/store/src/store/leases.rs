//! Nodes and their leases.

use async_trait::async_trait;
use longhaul_domain::{
    Lease, NodeId, NodeRecord, Serves, StoreError, TaskId,
    contract::store::{Leases, Verdict},
};

use super::SqlStore;
use crate::operations::{
    nodes::{DeclareOthersDead, HeartbeatNode, RegisterNode, RetireNode},
    read::ListNodes,
    strays::HandBackStrays,
};

#[async_trait]
impl Leases for SqlStore {
    async fn register_node(
        &self,
        id: NodeId,
        name: &str,
        host: &str,
        serves: Option<&Serves>,
    ) -> Result<(), StoreError> {
        let operation = RegisterNode {
            id,
            name: name.to_owned(),
            host: host.to_owned(),
            serves: serves.cloned(),
        };
        self.run("register_node", operation).await
    }

    async fn heartbeat_node(
        &self,
        id: NodeId,
        leases: &[Lease],
    ) -> Result<Vec<(Lease, Verdict)>, StoreError> {
        let leases = leases.to_vec();
        self.run("heartbeat_node", HeartbeatNode { id, leases })
            .await
    }

    async fn hand_back_strays(
        &self,
        node: NodeId,
        known: &[Lease],
        older_than_ms: u64,
    ) -> Result<Vec<TaskId>, StoreError> {
        let operation = HandBackStrays {
            node,
            known: known.to_vec(),
            older_than_ms,
        };
        self.run("hand_back_strays", operation).await
    }

    async fn retire_node(&self, id: NodeId) -> Result<(), StoreError> {
        self.run("retire_node", RetireNode { id }).await
    }

    async fn declare_others_dead(&self, survivor: NodeId) -> Result<(), StoreError> {
        let operation = DeclareOthersDead { survivor };
        self.run("declare_others_dead", operation).await
    }

    async fn list_nodes(&self) -> Result<Vec<NodeRecord>, StoreError> {
        self.run("list_nodes", ListNodes).await
    }
}
