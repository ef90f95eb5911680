//! The store as the simulated processes reach it: over a network that loses requests and answers.
//! Every call that can change something is observed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use longhaul_domain::{
    AccessToken, Attempt, Clock as _, Json, KnownToken, Lease, LogLine, LogPage, NewAccessToken,
    NewTask, NodeId, NodeRecord, QueueName, Serves, StoreError, TaskId, TaskRecord, Timestamp,
    artifact::{ArtifactNote, ArtifactRecord, Swept},
    contract::{
        broker::Hint,
        store::{
            Access, AttemptData, AttemptReport, BulkOutcome, BulkRequest, Cancelled, ClaimNamed,
            ClaimRequest, Expired, Failure, Leases, Maintenance, Outbox, QueueCommands, QueueHead,
            Queues, RescueRequest, Rescued, RetryScope, Submitted, TaskCommands, TaskReads, Tokens,
            Verdict,
        },
    },
    event::{LeasedMessage, OutboxPolicy},
    filter::{Page, PageRequest, Retention, TaskFilter},
    ids::ArtifactId,
    lifecycle::{expire::Overdue, reschedule::Reschedule},
    node::MaintenanceLease,
    queue::Queue,
    statistics::{CountFilter, TaskCount},
};
use longhaul_testkit::{clock::TestClock, reference::MemoryStore};

use crate::bugs::{BugMemory, PlantedBug};
use crate::coverage::Situation;
use crate::history::{Call, History};

/// A fault of the next call that changes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The request does not reach the store.
    LostRequest,
    /// The store executes the request, but the caller gets no answer.
    LostAnswer,
}

#[derive(Debug)]
pub(crate) struct SimStore {
    pub(crate) memory: MemoryStore,
    pub(crate) clock: TestClock,
    pub(crate) bug: Option<PlantedBug>,
    pub(crate) bug_memory: Mutex<BugMemory>,
    history: Mutex<History>,
    fault: Mutex<Option<Fault>>,
}

impl SimStore {
    pub(crate) fn new(seed: u64, bug: Option<PlantedBug>, traced: bool) -> Self {
        let clock = TestClock::fixed();
        Self {
            memory: MemoryStore::seeded(clock.clone(), OutboxPolicy::default(), seed),
            clock,
            bug,
            bug_memory: Mutex::default(),
            history: Mutex::new(History::new(traced)),
            fault: Mutex::default(),
        }
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn fail_next(&self, fault: Option<Fault>) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// The time that the store decides by. The timers of the processes follow it too.
    pub(crate) fn time(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn fault(&self) -> Option<Fault> {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the rows after a call.
    fn observe(&self, history: &mut History, call: Call<'_>) {
        self.memory
            .look(|tasks, nodes| history.observe(call, tasks, nodes));
    }

    fn call<T>(
        &self,
        name: &str,
        call: Call<'_>,
        done: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.over_the_network(name, done, |history, _| self.observe(history, call))
    }

    /// One call over the network, which may lose its request or its answer.
    fn over_the_network<T>(
        &self,
        name: &str,
        done: impl FnOnce() -> Result<T, StoreError>,
        observe: impl FnOnce(&mut History, &T),
    ) -> Result<T, StoreError> {
        let fault = self.fault();
        self.fail_next(None);
        if fault == Some(Fault::LostRequest) {
            let mut history = self.history();
            history.saw(Situation::LostRequest);
            history.note(format_args!("   {name}: the request is lost"));
            return Err(StoreError::Unavailable("the request was lost".to_owned()));
        }

        let answer = done();
        let mut history = self.history();
        match &answer {
            Ok(answer) => {
                history.note(format_args!("   {name}"));
                observe(&mut history, answer);
            }
            Err(error) => {
                history.note(format_args!("   {name}: {}", error.code()));
                // A refused call must not change a row.
                self.observe(&mut history, Call::Node);
            }
        }

        if fault == Some(Fault::LostAnswer) {
            history.saw(Situation::LostAnswer);
            history.note(format_args!("   {name}: the answer is lost"));
            return Err(StoreError::Unavailable("the answer was lost".to_owned()));
        }

        answer
    }
}

/// Polls once: the futures of the reference store are ready at once.
pub(crate) fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(done) => done,
        std::task::Poll::Pending => panic!("a future in the simulation is not ready at once"),
    }
}

#[async_trait]
impl TaskCommands for SimStore {
    fn next_id(&self) -> TaskId {
        self.memory.next_id()
    }

    async fn submit_task(&self, task: NewTask) -> Result<Submitted, StoreError> {
        if let Some(submitted) = self.acknowledged_without_commit(&task) {
            return Ok(submitted);
        }

        let tasks = [task];
        self.call("submit", Call::Submit, || self.submit_with_bug(&tasks))
            .map(|submitted| submitted[0])
    }

    async fn submit_tasks(&self, tasks: Vec<NewTask>) -> Result<Vec<Submitted>, StoreError> {
        self.call("submit children", Call::Submit, || {
            self.submit_with_bug(&tasks)
        })
    }

    async fn submit_and_claim(
        &self,
        task: NewTask,
        request: &ClaimRequest,
    ) -> Result<(Submitted, Vec<TaskRecord>), StoreError> {
        self.call("submit and claim", Call::Submit, || {
            ready(self.memory.submit_and_claim(task.clone(), request))
        })
    }

    async fn claim_tasks(&self, request: &ClaimRequest) -> Result<Vec<TaskRecord>, StoreError> {
        self.call("claim", Call::Claim(request.node_id), || {
            self.claim_with_bug(request)
        })
    }

    async fn claim_named(&self, request: &ClaimNamed) -> Result<Vec<TaskRecord>, StoreError> {
        self.call("claim named", Call::Claim(request.node_id), || {
            self.named_with_bug(request)
        })
    }

    async fn claim_host_affinity(
        &self,
        request: &ClaimRequest,
    ) -> Result<Vec<TaskRecord>, StoreError> {
        self.call("claim host affinity", Call::Claim(request.node_id), || {
            ready(self.memory.claim_host_affinity(request))
        })
    }

    async fn finish_tasks(&self, reports: &[AttemptReport]) -> Result<Vec<Verdict>, StoreError> {
        self.over_the_network(
            "finish",
            || self.finish_with_bug(reports),
            |history, verdicts| self.observe(history, Call::Finish { reports, verdicts }),
        )
    }

    async fn cancel_task(&self, access: &Access, id: TaskId) -> Result<Cancelled, StoreError> {
        let all = Access::All;
        let access = if self.bug == Some(PlantedBug::OwnerNotChecked) {
            &all
        } else {
            access
        };

        self.call("cancel", Call::Cancel, || {
            ready(self.memory.cancel_task(access, id))
        })
    }

    async fn retry_task(
        &self,
        access: &Access,
        id: TaskId,
        scope: RetryScope,
    ) -> Result<(), StoreError> {
        let call = match scope {
            RetryScope::Task => Call::Retry,
            RetryScope::FailedChildren => Call::RedoChildren,
        };
        self.call("retry", call, || {
            ready(self.memory.retry_task(access, id, scope))
        })
    }

    async fn reschedule_task(
        &self,
        access: &Access,
        id: TaskId,
        change: &Reschedule,
    ) -> Result<TaskRecord, StoreError> {
        let changed = || ready(self.memory.reschedule_task(access, id, change));
        self.call("reschedule", Call::Reschedule, changed)
    }

    async fn change_tasks(&self, request: &BulkRequest) -> Result<BulkOutcome, StoreError> {
        self.call("bulk", Call::Bulk(&request.change), || {
            ready(self.memory.change_tasks(request))
        })
    }

    async fn rescue_tasks(&self, request: &RescueRequest) -> Result<Rescued, StoreError> {
        self.call("rescue", Call::Rescue(request), || {
            self.rescue_with_bug(request)
        })
    }

    async fn expire_tasks(&self, overdue: &Overdue, limit: usize) -> Result<Expired, StoreError> {
        self.call("expire", Call::Expire, || {
            ready(self.memory.expire_tasks(overdue, limit))
        })
    }

    async fn fail_waiting(
        &self,
        ids: &[TaskId],
        failure: &Failure,
    ) -> Result<Vec<TaskId>, StoreError> {
        self.call("fail waiting", Call::FailWaiting, || {
            ready(self.memory.fail_waiting(ids, failure))
        })
    }
}

#[async_trait]
impl AttemptData for SimStore {
    async fn save_progress(&self, reports: &[(Lease, Json)]) -> Result<Vec<Verdict>, StoreError> {
        self.call("progress", Call::Progress, || {
            ready(self.memory.save_progress(reports))
        })
    }

    async fn save_checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Json,
    ) -> Result<Verdict, StoreError> {
        self.call("checkpoint", Call::Progress, || {
            ready(self.memory.save_checkpoint(lease, checkpoint))
        })
    }

    async fn append_logs(&self, lines: &[LogLine]) -> Result<Vec<Verdict>, StoreError> {
        self.memory.append_logs(lines).await
    }

    async fn note_artifact(
        &self,
        note: &ArtifactNote,
    ) -> Result<(Verdict, Option<ArtifactRecord>), StoreError> {
        self.memory.note_artifact(note).await
    }
}

#[async_trait]
impl TaskReads for SimStore {
    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.time())
    }

    async fn get_task(&self, access: &Access, id: TaskId) -> Result<TaskRecord, StoreError> {
        self.memory.get_task(access, id).await
    }

    async fn list_tasks(
        &self,
        access: &Access,
        filter: &TaskFilter,
        page: &PageRequest,
    ) -> Result<Page<TaskRecord>, StoreError> {
        self.memory.list_tasks(access, filter, page).await
    }

    async fn list_attempts(
        &self,
        access: &Access,
        id: TaskId,
        after: u32,
        limit: usize,
    ) -> Result<Vec<Attempt>, StoreError> {
        self.memory.list_attempts(access, id, after, limit).await
    }

    async fn list_logs(
        &self,
        access: &Access,
        id: TaskId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<LogPage, StoreError> {
        self.memory.list_logs(access, id, after, limit).await
    }

    async fn list_artifacts(
        &self,
        access: &Access,
        id: TaskId,
    ) -> Result<Vec<ArtifactRecord>, StoreError> {
        self.memory.list_artifacts(access, id).await
    }

    async fn get_artifact(&self, id: ArtifactId) -> Result<ArtifactRecord, StoreError> {
        self.memory.get_artifact(id).await
    }

    async fn read_task_counts(&self, filter: &CountFilter) -> Result<Vec<TaskCount>, StoreError> {
        self.memory.read_task_counts(filter).await
    }
}

#[async_trait]
impl Queues for SimStore {
    async fn list_queues(&self) -> Result<Vec<Queue>, StoreError> {
        self.memory.list_queues().await
    }

    async fn list_due(&self, queue: &QueueName, limit: usize) -> Result<Vec<Hint>, StoreError> {
        self.memory.list_due(queue, limit).await
    }

    async fn list_heads(&self) -> Result<Vec<QueueHead>, StoreError> {
        self.memory.list_heads().await
    }

    async fn next_due_at(
        &self,
        queues: &[QueueName],
        task_types: &[String],
    ) -> Result<Option<Timestamp>, StoreError> {
        self.memory.next_due_at(queues, task_types).await
    }

    async fn count_ahead(
        &self,
        task: &TaskRecord,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize, StoreError> {
        self.memory.count_ahead(task, now, limit).await
    }
}

#[async_trait]
impl QueueCommands for SimStore {
    async fn pause_queue(&self, name: &QueueName) -> Result<(), StoreError> {
        self.history().paused.insert(name.clone());
        self.memory.pause_queue(name).await
    }

    async fn resume_queue(&self, name: &QueueName) -> Result<(), StoreError> {
        self.history().paused.remove(name);
        self.memory.resume_queue(name).await
    }

    async fn promote_tasks(
        &self,
        queue: &QueueName,
        waited_ms: u64,
        most: usize,
    ) -> Result<usize, StoreError> {
        self.memory.promote_tasks(queue, waited_ms, most).await
    }
}

#[async_trait]
impl Leases for SimStore {
    async fn register_node(
        &self,
        id: NodeId,
        name: &str,
        host: &str,
        serves: Option<&Serves>,
    ) -> Result<(), StoreError> {
        self.call("register", Call::Node, || {
            ready(self.memory.register_node(id, name, host, serves))
        })
    }

    async fn heartbeat_node(
        &self,
        id: NodeId,
        leases: &[Lease],
    ) -> Result<Vec<(Lease, Verdict)>, StoreError> {
        self.call("heartbeat", Call::Node, || {
            self.heartbeat_with_bug(id, leases)
        })
    }

    async fn hand_back_strays(
        &self,
        node: NodeId,
        known: &[Lease],
        older_than_ms: u64,
    ) -> Result<Vec<TaskId>, StoreError> {
        let strays = || ready(self.memory.hand_back_strays(node, known, older_than_ms));
        self.call("strays", Call::Strays, strays)
    }

    async fn retire_node(&self, id: NodeId) -> Result<(), StoreError> {
        self.call("retire", Call::Node, || ready(self.memory.retire_node(id)))
    }

    async fn declare_others_dead(&self, survivor: NodeId) -> Result<(), StoreError> {
        self.memory.declare_others_dead(survivor).await
    }

    async fn list_nodes(&self) -> Result<Vec<NodeRecord>, StoreError> {
        self.memory.list_nodes().await
    }
}

#[async_trait]
impl Maintenance for SimStore {
    async fn take_maintenance_lease(
        &self,
        job: &str,
        node: NodeId,
        ttl_ms: u64,
    ) -> Result<Option<MaintenanceLease>, StoreError> {
        let taken = ready(self.memory.take_maintenance_lease(job, node, ttl_ms))?;
        if taken.is_none() {
            self.history().saw(Situation::LeaseHeldByAnother);
        }
        Ok(taken)
    }

    async fn list_prunable(
        &self,
        keep: &Retention,
        after: Option<TaskId>,
        limit: usize,
    ) -> Result<Page<TaskRecord>, StoreError> {
        self.memory.list_prunable(keep, after, limit).await
    }

    async fn prune_tasks(&self, keep: &Retention, ids: &[TaskId]) -> Result<usize, StoreError> {
        self.memory.prune_tasks(keep, ids).await
    }

    async fn prune_idempotency_keys(&self, limit: usize) -> Result<usize, StoreError> {
        self.memory.prune_idempotency_keys(limit).await
    }

    async fn list_expired_artifacts(
        &self,
        limit: usize,
    ) -> Result<Vec<ArtifactRecord>, StoreError> {
        self.memory.list_expired_artifacts(limit).await
    }

    async fn note_sweep(&self, swept: &[Swept], retry_ms: u64) -> Result<(), StoreError> {
        self.memory.note_sweep(swept, retry_ms).await
    }

    async fn compact_counts(&self, limit: usize) -> Result<usize, StoreError> {
        self.memory.compact_counts(limit).await
    }
}

#[async_trait]
impl Outbox for SimStore {
    async fn lease_outbox(
        &self,
        limit: usize,
        ttl_ms: u64,
    ) -> Result<Vec<LeasedMessage>, StoreError> {
        self.memory.lease_outbox(limit, ttl_ms).await
    }

    async fn confirm_outbox(&self, ids: &[i64]) -> Result<(), StoreError> {
        self.memory.confirm_outbox(ids).await
    }

    async fn count_outbox(&self, limit: usize) -> Result<usize, StoreError> {
        self.memory.count_outbox(limit).await
    }
}

#[async_trait]
impl Tokens for SimStore {
    async fn create_token(&self, token: &NewAccessToken) -> Result<AccessToken, StoreError> {
        self.memory.create_token(token).await
    }

    async fn find_token(&self, id: &str) -> Result<Option<KnownToken>, StoreError> {
        self.memory.find_token(id).await
    }

    async fn list_tokens(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<AccessToken>, StoreError> {
        self.memory.list_tokens(after, limit).await
    }

    async fn touch_token(&self, id: &str) -> Result<(), StoreError> {
        self.memory.touch_token(id).await
    }

    async fn revoke_token(&self, id: &str) -> Result<Option<AccessToken>, StoreError> {
        self.memory.revoke_token(id).await
    }

    async fn prune_tokens(&self, limit: usize) -> Result<usize, StoreError> {
        self.memory.prune_tokens(limit).await
    }
}
