//! Nodes and their leases.

use async_trait::async_trait;
use longhaul_domain::{
    Lease, NodeId, NodeRecord, Serves, StoreError, TaskId, TaskRecord, Timestamp, bounds,
    contract::store::{Leases, Verdict},
    lifecycle::{hand_back, heartbeat},
};

use super::{MemoryStore, attempts::verdict_of, state::State};

#[async_trait]
impl Leases for MemoryStore {
    async fn register_node(
        &self,
        id: NodeId,
        name: &str,
        host: &str,
        serves: Option<&Serves>,
    ) -> Result<(), StoreError> {
        self.node_call("register_node", |state, now| {
            state.register_node(id, name, host, serves, now)
        })
        .await
    }

    async fn heartbeat_node(
        &self,
        id: NodeId,
        leases: &[Lease],
    ) -> Result<Vec<(Lease, Verdict)>, StoreError> {
        self.node_call("heartbeat_node", |state, now| {
            state.heartbeat(id, leases, now)
        })
        .await
    }

    async fn hand_back_strays(
        &self,
        node: NodeId,
        known: &[Lease],
        older_than_ms: u64,
    ) -> Result<Vec<TaskId>, StoreError> {
        self.node_call("hand_back_strays", |state, now| {
            state.hand_back_strays(node, known, older_than_ms, now)
        })
        .await
    }

    async fn retire_node(&self, id: NodeId) -> Result<(), StoreError> {
        self.node_call("retire_node", |state, _| {
            state.nodes.remove(&id);
            Ok(())
        })
        .await
    }

    async fn declare_others_dead(&self, survivor: NodeId) -> Result<(), StoreError> {
        let (mut state, now) = self.begin();
        state.declare_others_dead(survivor, now);
        Ok(())
    }

    async fn list_nodes(&self) -> Result<Vec<NodeRecord>, StoreError> {
        Ok(self.begin().0.nodes.values().cloned().collect())
    }
}

impl State {
    pub(super) fn register_node(
        &mut self,
        id: NodeId,
        name: &str,
        host: &str,
        serves: Option<&Serves>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        NodeRecord::check(name, host)?;
        let fresh = NodeRecord {
            id,
            name: name.to_owned(),
            host: host.to_owned(),
            started_at: now,
            heartbeat_at: now,
            lost_at: None,
            serves: serves.cloned(),
        };

        let node = self.nodes.entry(id).or_insert(fresh);
        if node.lost_at.is_some() {
            return Err(StoreError::NodeLost);
        }

        node.name = name.to_owned();
        node.host = host.to_owned();
        node.heartbeat_at = now;
        Ok(())
    }

    pub(super) fn live_node(&mut self, id: NodeId) -> Result<&mut NodeRecord, StoreError> {
        let node = self.nodes.get_mut(&id);
        node.filter(|node| node.lost_at.is_none())
            .ok_or(StoreError::NodeLost)
    }

    pub(super) fn heartbeat(
        &mut self,
        id: NodeId,
        leases: &[Lease],
        now: Timestamp,
    ) -> Result<Vec<(Lease, Verdict)>, StoreError> {
        bounds::check_batch("leases", leases.len(), bounds::CLAIM_BATCH)?;
        self.live_node(id)?.heartbeat_at = now;

        let gone = |lease: &Lease| {
            let verdict = match self.tasks.get(&lease.task_id) {
                None => Verdict::Missing,
                Some(task) => verdict_of(heartbeat::decide(task, lease).err()?, task),
            };
            Some((*lease, verdict))
        };

        Ok(leases.iter().filter_map(gone).collect())
    }

    pub(super) fn hand_back_strays(
        &mut self,
        node: NodeId,
        known: &[Lease],
        older_than_ms: u64,
        now: Timestamp,
    ) -> Result<Vec<TaskId>, StoreError> {
        bounds::check_batch("known", known.len(), bounds::HELD)?;
        bounds::check_duration_ms("olderThan", older_than_ms)?;

        let is_old = |task: &&TaskRecord| {
            let started = task.last_attempt_at;
            started.is_some_and(|at| at.plus_ms(older_than_ms) <= now)
        };
        let tasks = self.tasks.values();
        let of_node = tasks.filter(|task| task.node_id == Some(node));
        let leases = of_node.filter(is_old).filter_map(TaskRecord::lease);
        let strays = leases.filter(|lease| !known.contains(lease));
        let strays: Vec<Lease> = strays.take(bounds::MAINTENANCE_BATCH).collect();

        for lease in &strays {
            let transition = hand_back::decide(&self.tasks[&lease.task_id], lease, now)?;
            self.apply(transition, now);
        }

        Ok(strays.into_iter().map(|lease| lease.task_id).collect())
    }

    pub(super) fn declare_others_dead(&mut self, survivor: NodeId, now: Timestamp) {
        for node in self.nodes.values_mut().filter(|node| node.id != survivor) {
            node.lost_at.get_or_insert(now);
        }

        let jobs = self.maintenance.values_mut();
        for job in jobs.filter(|job| job.node_id != survivor) {
            job.leased_until = Timestamp::from_micros(0);
        }
    }
}
