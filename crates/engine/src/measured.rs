//! A store that is watched: every operation is passed on as it is, and counted.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_domain::{
    AccessToken, Attempt, Json, KnownToken, Lease, LogLine, LogPage, NewAccessToken, NewTask, Node,
    NodeId, Serves, StoreError, Task, TaskId, Timestamp,
    artifact::{ArtifactNote, ArtifactRecord, Swept},
    contract::{
        Store,
        broker::Bell,
        store::{
            Access, BulkOutcome, BulkRequest, Cancelled, ClaimNamed, ClaimRequest, Expired,
            Failure, QueueHead, Report, RescueRequest, Rescued, RetryScope, Submitted, Verdict,
        },
    },
    event::LeasedMessage,
    filter::{Page, PageRequest, Retention, TaskFilter},
    ids::ArtifactId,
    lifecycle::{expire::Overdue, reschedule::Reschedule},
    node::DutyLease,
    queue::Queue,
    statistics::{Tally, TallyFilter},
};

use crate::metrics::{Metrics, StoreOperation};

/// See the module.
#[derive(Debug)]
pub(crate) struct MeasuredStore {
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
}

impl MeasuredStore {
    pub(crate) fn new(store: Arc<dyn Store>, metrics: Arc<Metrics>) -> Self {
        Self { store, metrics }
    }

    async fn watch<T>(
        &self,
        operation: StoreOperation,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        self.metrics.store.watch(operation, answer).await
    }
}

const fn update(name: &'static str) -> StoreOperation {
    StoreOperation {
        name,
        is_update: true,
    }
}

const fn read(name: &'static str) -> StoreOperation {
    StoreOperation {
        name,
        is_update: false,
    }
}

#[async_trait]
impl Store for MeasuredStore {
    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.watch(read("now"), self.store.now()).await
    }

    fn next_id(&self) -> TaskId {
        self.store.next_id()
    }

    async fn submit_task(&self, task: NewTask) -> Result<Submitted, StoreError> {
        self.watch(update("submit_task"), self.store.submit_task(task))
            .await
    }

    async fn submit_tasks(&self, tasks: Vec<NewTask>) -> Result<Vec<Submitted>, StoreError> {
        self.watch(update("submit_tasks"), self.store.submit_tasks(tasks))
            .await
    }

    async fn submit_and_claim(
        &self,
        task: NewTask,
        request: &ClaimRequest,
    ) -> Result<(Submitted, Vec<Task>), StoreError> {
        self.watch(
            update("submit_and_claim"),
            self.store.submit_and_claim(task, request),
        )
        .await
    }

    async fn register_node(
        &self,
        id: NodeId,
        name: &str,
        host: &str,
        serves: Option<&Serves>,
    ) -> Result<(), StoreError> {
        self.watch(
            update("register_node"),
            self.store.register_node(id, name, host, serves),
        )
        .await
    }

    async fn heartbeat_node(
        &self,
        id: NodeId,
        leases: &[Lease],
    ) -> Result<Vec<(Lease, Verdict)>, StoreError> {
        self.watch(
            update("heartbeat_node"),
            self.store.heartbeat_node(id, leases),
        )
        .await
    }

    async fn hand_back_strays(
        &self,
        node: NodeId,
        held: &[Lease],
        older_than_ms: u64,
    ) -> Result<Vec<TaskId>, StoreError> {
        self.watch(
            update("hand_back_strays"),
            self.store.hand_back_strays(node, held, older_than_ms),
        )
        .await
    }

    async fn retire_node(&self, id: NodeId) -> Result<(), StoreError> {
        self.watch(update("retire_node"), self.store.retire_node(id))
            .await
    }

    async fn claim_tasks(&self, request: &ClaimRequest) -> Result<Vec<Task>, StoreError> {
        self.watch(update("claim_tasks"), self.store.claim_tasks(request))
            .await
    }

    async fn claim_named(&self, request: &ClaimNamed) -> Result<Vec<Task>, StoreError> {
        self.watch(update("claim_named"), self.store.claim_named(request))
            .await
    }

    async fn claim_kept(&self, request: &ClaimRequest) -> Result<Vec<Task>, StoreError> {
        self.watch(update("claim_kept"), self.store.claim_kept(request))
            .await
    }

    async fn save_progress(&self, reports: &[(Lease, Json)]) -> Result<Vec<Verdict>, StoreError> {
        self.watch(update("save_progress"), self.store.save_progress(reports))
            .await
    }

    async fn save_checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Json,
    ) -> Result<Verdict, StoreError> {
        self.watch(
            update("save_checkpoint"),
            self.store.save_checkpoint(lease, checkpoint),
        )
        .await
    }

    async fn append_logs(&self, lines: &[LogLine]) -> Result<Vec<Verdict>, StoreError> {
        self.watch(update("append_logs"), self.store.append_logs(lines))
            .await
    }

    async fn finish_tasks(&self, reports: &[Report]) -> Result<Vec<Verdict>, StoreError> {
        self.watch(update("finish_tasks"), self.store.finish_tasks(reports))
            .await
    }

    async fn cancel_task(&self, access: &Access, id: TaskId) -> Result<Cancelled, StoreError> {
        self.watch(update("cancel_task"), self.store.cancel_task(access, id))
            .await
    }

    async fn retry_task(
        &self,
        access: &Access,
        id: TaskId,
        scope: RetryScope,
    ) -> Result<(), StoreError> {
        self.watch(
            update("retry_task"),
            self.store.retry_task(access, id, scope),
        )
        .await
    }

    async fn reschedule_task(
        &self,
        access: &Access,
        id: TaskId,
        change: &Reschedule,
    ) -> Result<Task, StoreError> {
        self.watch(
            update("reschedule_task"),
            self.store.reschedule_task(access, id, change),
        )
        .await
    }

    async fn change_tasks(&self, request: &BulkRequest) -> Result<BulkOutcome, StoreError> {
        self.watch(update("change_tasks"), self.store.change_tasks(request))
            .await
    }

    async fn pause_queue(&self, name: &str) -> Result<(), StoreError> {
        self.watch(update("pause_queue"), self.store.pause_queue(name))
            .await
    }

    async fn resume_queue(&self, name: &str) -> Result<(), StoreError> {
        self.watch(update("resume_queue"), self.store.resume_queue(name))
            .await
    }

    async fn take_duty(
        &self,
        duty: &str,
        node: NodeId,
        ttl_ms: u64,
    ) -> Result<Option<DutyLease>, StoreError> {
        self.watch(
            update("take_duty"),
            self.store.take_duty(duty, node, ttl_ms),
        )
        .await
    }

    async fn declare_others_dead(&self, survivor: NodeId) -> Result<(), StoreError> {
        self.watch(
            update("declare_others_dead"),
            self.store.declare_others_dead(survivor),
        )
        .await
    }

    async fn rescue_tasks(&self, request: &RescueRequest) -> Result<Rescued, StoreError> {
        self.watch(update("rescue_tasks"), self.store.rescue_tasks(request))
            .await
    }

    async fn expire_tasks(&self, overdue: &Overdue, limit: usize) -> Result<Expired, StoreError> {
        self.watch(
            update("expire_tasks"),
            self.store.expire_tasks(overdue, limit),
        )
        .await
    }

    async fn list_due(&self, queue: &str, limit: usize) -> Result<Vec<Bell>, StoreError> {
        self.watch(read("list_due"), self.store.list_due(queue, limit))
            .await
    }

    async fn list_heads(&self) -> Result<Vec<QueueHead>, StoreError> {
        self.watch(read("list_heads"), self.store.list_heads())
            .await
    }

    async fn bring_forward(
        &self,
        queue: &str,
        waited_ms: u64,
        most: usize,
    ) -> Result<usize, StoreError> {
        self.watch(
            update("bring_forward"),
            self.store.bring_forward(queue, waited_ms, most),
        )
        .await
    }

    async fn fail_waiting(
        &self,
        ids: &[TaskId],
        failure: &Failure,
    ) -> Result<Vec<TaskId>, StoreError> {
        self.watch(
            update("fail_waiting"),
            self.store.fail_waiting(ids, failure),
        )
        .await
    }

    async fn next_due_at(
        &self,
        queues: &[String],
        task_types: &[String],
    ) -> Result<Option<Timestamp>, StoreError> {
        self.watch(
            read("next_due_at"),
            self.store.next_due_at(queues, task_types),
        )
        .await
    }

    async fn list_prunable(
        &self,
        keep: &Retention,
        after: Option<TaskId>,
        limit: usize,
    ) -> Result<Page<Task>, StoreError> {
        self.watch(
            read("list_prunable"),
            self.store.list_prunable(keep, after, limit),
        )
        .await
    }

    async fn prune_tasks(&self, keep: &Retention, ids: &[TaskId]) -> Result<usize, StoreError> {
        self.watch(update("prune_tasks"), self.store.prune_tasks(keep, ids))
            .await
    }

    async fn prune_idempotency_keys(&self, limit: usize) -> Result<usize, StoreError> {
        self.watch(
            update("prune_idempotency_keys"),
            self.store.prune_idempotency_keys(limit),
        )
        .await
    }

    async fn lease_outbox(
        &self,
        limit: usize,
        ttl_ms: u64,
    ) -> Result<Vec<LeasedMessage>, StoreError> {
        self.watch(
            update("lease_outbox"),
            self.store.lease_outbox(limit, ttl_ms),
        )
        .await
    }

    async fn confirm_outbox(&self, ids: &[i64]) -> Result<(), StoreError> {
        self.watch(update("confirm_outbox"), self.store.confirm_outbox(ids))
            .await
    }

    async fn count_outbox(&self, limit: usize) -> Result<usize, StoreError> {
        self.watch(read("count_outbox"), self.store.count_outbox(limit))
            .await
    }

    async fn fold_tallies(&self, limit: usize) -> Result<usize, StoreError> {
        self.watch(update("fold_tallies"), self.store.fold_tallies(limit))
            .await
    }

    async fn get_task(&self, access: &Access, id: TaskId) -> Result<Task, StoreError> {
        self.watch(read("get_task"), self.store.get_task(access, id))
            .await
    }

    async fn list_tasks(
        &self,
        access: &Access,
        filter: &TaskFilter,
        page: &PageRequest,
    ) -> Result<Page<Task>, StoreError> {
        self.watch(
            read("list_tasks"),
            self.store.list_tasks(access, filter, page),
        )
        .await
    }

    async fn list_attempts(
        &self,
        access: &Access,
        id: TaskId,
        after: u32,
        limit: usize,
    ) -> Result<Vec<Attempt>, StoreError> {
        self.watch(
            read("list_attempts"),
            self.store.list_attempts(access, id, after, limit),
        )
        .await
    }

    async fn list_logs(
        &self,
        access: &Access,
        id: TaskId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<LogPage, StoreError> {
        self.watch(
            read("list_logs"),
            self.store.list_logs(access, id, after, limit),
        )
        .await
    }

    async fn count_ahead(
        &self,
        task: &Task,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize, StoreError> {
        self.watch(
            read("count_ahead"),
            self.store.count_ahead(task, now, limit),
        )
        .await
    }

    async fn list_queues(&self) -> Result<Vec<Queue>, StoreError> {
        self.watch(read("list_queues"), self.store.list_queues())
            .await
    }

    async fn list_nodes(&self) -> Result<Vec<Node>, StoreError> {
        self.watch(read("list_nodes"), self.store.list_nodes())
            .await
    }

    async fn read_tallies(&self, filter: &TallyFilter) -> Result<Vec<Tally>, StoreError> {
        self.watch(read("read_tallies"), self.store.read_tallies(filter))
            .await
    }

    async fn note_artifact(
        &self,
        note: &ArtifactNote,
    ) -> Result<(Verdict, Option<ArtifactRecord>), StoreError> {
        self.watch(update("note_artifact"), self.store.note_artifact(note))
            .await
    }

    async fn list_expired_artifacts(
        &self,
        limit: usize,
    ) -> Result<Vec<ArtifactRecord>, StoreError> {
        self.watch(
            read("list_expired_artifacts"),
            self.store.list_expired_artifacts(limit),
        )
        .await
    }

    async fn note_sweep(&self, swept: &[Swept], retry_ms: u64) -> Result<(), StoreError> {
        self.watch(update("note_sweep"), self.store.note_sweep(swept, retry_ms))
            .await
    }

    async fn list_artifacts(
        &self,
        access: &Access,
        id: TaskId,
    ) -> Result<Vec<ArtifactRecord>, StoreError> {
        self.watch(
            read("list_artifacts"),
            self.store.list_artifacts(access, id),
        )
        .await
    }

    async fn get_artifact(&self, id: ArtifactId) -> Result<ArtifactRecord, StoreError> {
        self.watch(read("get_artifact"), self.store.get_artifact(id))
            .await
    }

    async fn create_token(&self, token: &NewAccessToken) -> Result<AccessToken, StoreError> {
        self.watch(update("create_token"), self.store.create_token(token))
            .await
    }

    async fn find_token(&self, id: &str) -> Result<Option<KnownToken>, StoreError> {
        self.watch(read("find_token"), self.store.find_token(id))
            .await
    }

    async fn list_tokens(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<AccessToken>, StoreError> {
        self.watch(read("list_tokens"), self.store.list_tokens(after, limit))
            .await
    }

    async fn prune_tokens(&self, limit: usize) -> Result<usize, StoreError> {
        self.watch(update("prune_tokens"), self.store.prune_tokens(limit))
            .await
    }

    async fn touch_token(&self, id: &str) -> Result<(), StoreError> {
        self.watch(update("touch_token"), self.store.touch_token(id))
            .await
    }

    async fn revoke_token(&self, id: &str) -> Result<Option<AccessToken>, StoreError> {
        self.watch(update("revoke_token"), self.store.revoke_token(id))
            .await
    }
}
