//! The store in memory with a fuse in its checkpoints. Everything else is passed on.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_domain::{
    Attempt, Json, Lease, LogLine, LogPage, NewTask, Node, NodeId, Status, StoreError, Task, TaskId, Timestamp,
    contract::{
        Store,
        store::{
            Access, BulkOutcome, BulkRequest, ClaimRequest, Report, RescueRequest, Rescued, RetryScope, Submitted,
            Verdict,
        },
    },
    event::LeasedMessage,
    filter::{Page, PageRequest, Retention, TaskFilter},
    lifecycle::{expire::Overdue, reschedule::Reschedule},
    node::DutyLease,
    queue::Queue,
    statistics::{Tally, TallyFilter},
};
use longhaul_testkit::reference::MemoryStore;

use super::fuse::Fuse;

#[derive(Debug)]
pub(super) struct FusedStore {
    inner: MemoryStore,
    fuse: Arc<Fuse>,
}

impl FusedStore {
    pub(super) const fn new(inner: MemoryStore, fuse: Arc<Fuse>) -> Self {
        Self { inner, fuse }
    }
}

#[async_trait]
impl Store for FusedStore {
    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.inner.now().await
    }

    async fn submit_task(&self, task: NewTask) -> Result<Submitted, StoreError> {
        self.inner.submit_task(task).await
    }

    async fn submit_tasks(&self, tasks: Vec<NewTask>) -> Result<Vec<Submitted>, StoreError> {
        self.inner.submit_tasks(tasks).await
    }

    async fn register_node(&self, id: NodeId, name: &str, host: &str) -> Result<(), StoreError> {
        self.inner.register_node(id, name, host).await
    }

    async fn heartbeat_node(&self, id: NodeId, leases: &[Lease]) -> Result<Vec<(Lease, Verdict)>, StoreError> {
        self.inner.heartbeat_node(id, leases).await
    }

    async fn hand_back_strays(
        &self,
        node: NodeId,
        held: &[Lease],
        older_than_ms: u64,
    ) -> Result<Vec<TaskId>, StoreError> {
        self.inner.hand_back_strays(node, held, older_than_ms).await
    }

    async fn retire_node(&self, id: NodeId) -> Result<(), StoreError> {
        self.inner.retire_node(id).await
    }

    async fn claim_tasks(&self, request: &ClaimRequest) -> Result<Vec<Task>, StoreError> {
        self.inner.claim_tasks(request).await
    }

    async fn save_progress(&self, reports: &[(Lease, Json)]) -> Result<Vec<Verdict>, StoreError> {
        self.inner.save_progress(reports).await
    }

    async fn save_checkpoint(&self, lease: &Lease, checkpoint: &Json) -> Result<Verdict, StoreError> {
        if self.fuse.is_blown() {
            // The process is dead; whatever still runs of it writes nothing more.
            return std::future::pending().await;
        }
        let verdict = self.inner.save_checkpoint(lease, checkpoint).await?;
        if verdict.is_accepted() && self.fuse.burn() {
            return std::future::pending().await;
        }
        Ok(verdict)
    }

    async fn append_logs(&self, lines: &[LogLine]) -> Result<Vec<Verdict>, StoreError> {
        self.inner.append_logs(lines).await
    }

    async fn finish_tasks(&self, reports: &[Report]) -> Result<Vec<Verdict>, StoreError> {
        self.inner.finish_tasks(reports).await
    }

    async fn cancel_task(&self, access: &Access, id: TaskId) -> Result<Status, StoreError> {
        self.inner.cancel_task(access, id).await
    }

    async fn retry_task(&self, access: &Access, id: TaskId, scope: RetryScope) -> Result<(), StoreError> {
        self.inner.retry_task(access, id, scope).await
    }

    async fn reschedule_task(&self, access: &Access, id: TaskId, change: &Reschedule) -> Result<Task, StoreError> {
        self.inner.reschedule_task(access, id, change).await
    }

    async fn change_tasks(&self, request: &BulkRequest) -> Result<BulkOutcome, StoreError> {
        self.inner.change_tasks(request).await
    }

    async fn pause_queue(&self, name: &str) -> Result<(), StoreError> {
        self.inner.pause_queue(name).await
    }

    async fn resume_queue(&self, name: &str) -> Result<(), StoreError> {
        self.inner.resume_queue(name).await
    }

    async fn take_duty(&self, duty: &str, node: NodeId, ttl_ms: u64) -> Result<Option<DutyLease>, StoreError> {
        self.inner.take_duty(duty, node, ttl_ms).await
    }

    async fn declare_others_dead(&self, survivor: NodeId) -> Result<(), StoreError> {
        self.inner.declare_others_dead(survivor).await
    }

    async fn rescue_tasks(&self, request: &RescueRequest) -> Result<Rescued, StoreError> {
        self.inner.rescue_tasks(request).await
    }

    async fn expire_tasks(&self, overdue: &Overdue, limit: usize) -> Result<usize, StoreError> {
        self.inner.expire_tasks(overdue, limit).await
    }

    async fn next_due_at(&self, queues: &[String], task_types: &[String]) -> Result<Option<Timestamp>, StoreError> {
        self.inner.next_due_at(queues, task_types).await
    }

    async fn list_prunable(
        &self,
        keep: &Retention,
        after: Option<TaskId>,
        limit: usize,
    ) -> Result<Page<Task>, StoreError> {
        self.inner.list_prunable(keep, after, limit).await
    }

    async fn prune_tasks(&self, keep: &Retention, ids: &[TaskId]) -> Result<usize, StoreError> {
        self.inner.prune_tasks(keep, ids).await
    }

    async fn prune_idempotency_keys(&self, limit: usize) -> Result<usize, StoreError> {
        self.inner.prune_idempotency_keys(limit).await
    }

    async fn lease_outbox(&self, limit: usize, ttl_ms: u64) -> Result<Vec<LeasedMessage>, StoreError> {
        self.inner.lease_outbox(limit, ttl_ms).await
    }

    async fn confirm_outbox(&self, ids: &[i64]) -> Result<(), StoreError> {
        self.inner.confirm_outbox(ids).await
    }

    async fn fold_tallies(&self, limit: usize) -> Result<usize, StoreError> {
        self.inner.fold_tallies(limit).await
    }

    async fn get_task(&self, access: &Access, id: TaskId) -> Result<Task, StoreError> {
        self.inner.get_task(access, id).await
    }

    async fn list_tasks(
        &self,
        access: &Access,
        filter: &TaskFilter,
        page: &PageRequest,
    ) -> Result<Page<Task>, StoreError> {
        self.inner.list_tasks(access, filter, page).await
    }

    async fn list_attempts(&self, access: &Access, id: TaskId) -> Result<Vec<Attempt>, StoreError> {
        self.inner.list_attempts(access, id).await
    }

    async fn list_logs(
        &self,
        access: &Access,
        id: TaskId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<LogPage, StoreError> {
        self.inner.list_logs(access, id, after, limit).await
    }

    async fn list_queues(&self) -> Result<Vec<Queue>, StoreError> {
        self.inner.list_queues().await
    }

    async fn list_nodes(&self) -> Result<Vec<Node>, StoreError> {
        self.inner.list_nodes().await
    }

    async fn read_tallies(&self, filter: &TallyFilter) -> Result<Vec<Tally>, StoreError> {
        self.inner.read_tallies(filter).await
    }
}
