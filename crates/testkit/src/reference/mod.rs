//! The reference store: the contract in memory, as plainly as it can be written.
//!
//! It is the yardstick that the databases are measured against, so it must never be clever: one lock, plain
//! maps, and the domain's decisions. It keeps nothing after the process and is no product.

mod state;

mod artifacts;
mod logs;
mod submitting;
mod waiting;
mod working;

mod duties;
mod people;
mod reading;
mod tokens;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use longhaul_domain::{
    AccessToken, Attempt, Clock, Json, KnownToken, Lease, LogLine, LogPage, NewAccessToken,
    NewTask, Node, NodeId, Serves, StoreError, Task, TaskId, Timestamp,
    artifact::{ArtifactNote, ArtifactRecord, Swept},
    contract::{
        Store,
        broker::Bell,
        store::{
            Access, BulkOutcome, BulkRequest, Cancelled, ClaimNamed, ClaimRequest, Expired,
            Failure, QueueHead, Report, RescueRequest, Rescued, RetryScope, Submitted, Verdict,
        },
    },
    event::{LeasedMessage, OutboxPolicy},
    filter::{Page, PageRequest, Retention, TaskFilter},
    ids::ArtifactId,
    lifecycle::{Transition, expire::Overdue, reschedule::Reschedule},
    node::DutyLease,
    queue::Queue,
    statistics::{Tally, TallyFilter},
};
use rand::{SeedableRng, rngs::StdRng};

use crate::clock::TestClock;
use state::State;

/// The store in memory.
#[derive(Debug)]
pub struct MemoryStore {
    clock: TestClock,
    state: Mutex<State>,
    checkpoint_watch: Option<Arc<dyn CheckpointWatch>>,
    refused_finishes: Mutex<VecDeque<StoreError>>,
    node_watch: Option<Arc<dyn NodeWatch>>,
}

/// Who stands beside the saving of checkpoints, for tests that crash there.
#[async_trait]
pub trait CheckpointWatch: Send + Sync + std::fmt::Debug {
    /// Before the store looks at the checkpoint.
    async fn before(&self);
    /// After it was stored, and before its caller hears of that.
    async fn after(&self);
}

/// Who stands beside what nodes ask for by themselves, for tests of nodes whose store is slow, silent or away.
#[async_trait]
pub trait NodeWatch: Send + Sync + std::fmt::Debug {
    /// Before the store looks at the request. An error is the caller's answer, and the store never hears of it.
    async fn before(&self, operation: &'static str) -> Result<(), StoreError>;
    /// After it was done, and before its caller hears of that.
    async fn after(&self, operation: &'static str);
}

impl MemoryStore {
    pub fn new(clock: TestClock, outbox: OutboxPolicy) -> Self {
        let state = State::new(outbox, StdRng::from_rng(&mut rand::rng()));
        Self::with(clock, state)
    }

    /// A store whose ids, tokens and jitter follow from `seed` alone. With [`TestClock::fixed`], the same calls in the
    /// same order give the same answers to the last bit.
    pub fn seeded(clock: TestClock, outbox: OutboxPolicy, seed: u64) -> Self {
        let state = State::new(outbox, StdRng::seed_from_u64(seed));
        Self::with(clock, state)
    }

    fn with(clock: TestClock, state: State) -> Self {
        let refused_finishes = Mutex::default();
        Self {
            clock,
            state: Mutex::new(state),
            checkpoint_watch: None,
            refused_finishes,
            node_watch: None,
        }
    }

    #[must_use]
    pub fn watched(mut self, watch: Arc<dyn CheckpointWatch>) -> Self {
        self.checkpoint_watch = Some(watch);
        self
    }

    /// Answers the next finishes with these errors, one each, and changes nothing.
    pub fn refuse_finishes(&self, errors: impl IntoIterator<Item = StoreError>) {
        self.refused_finishes
            .lock()
            .expect("no other operation holds it")
            .extend(errors);
    }

    #[must_use]
    pub fn with_node_watch(mut self, watch: Arc<dyn NodeWatch>) -> Self {
        self.node_watch = Some(watch);
        self
    }

    /// One call of a node, with whoever stands beside it.
    async fn of_node<T: Send>(
        &self,
        operation: &'static str,
        call: impl FnOnce(&mut State, Timestamp) -> Result<T, StoreError> + Send,
    ) -> Result<T, StoreError> {
        if let Some(watch) = &self.node_watch {
            watch.before(operation).await?;
        }
        let done = {
            let (mut state, now) = self.begin();
            call(&mut state, now)
        };
        if let Some(watch) = &self.node_watch {
            watch.after(operation).await;
        }
        done
    }

    /// Shows all rows as they are, without a copy and without a reading of the clock.
    pub fn look<R>(
        &self,
        look: impl FnOnce(&BTreeMap<TaskId, Task>, &BTreeMap<NodeId, Node>) -> R,
    ) -> R {
        let state = self
            .state
            .lock()
            .expect("an operation panicked while it held the tables");
        look(&state.tasks, &state.nodes)
    }

    /// Writes a task past every guard; its parent is told if `tells_parent`. For tests that plant a mistake and want
    /// to see it caught.
    pub fn overwrite_task(&self, transition: Transition, tells_parent: bool) {
        let (mut state, now) = self.begin();
        if tells_parent {
            state.apply(transition, now);
        } else {
            state.apply_alone(transition);
        }
    }

    /// Writes a node past every guard, for the same tests.
    pub fn overwrite_node(&self, node: Node) {
        self.begin().0.nodes.insert(node.id, node);
    }

    /// The tables, for one operation. The time is read under the lock, so that it grows with each change.
    fn begin(&self) -> (MutexGuard<'_, State>, Timestamp) {
        let mut state = self
            .state
            .lock()
            .expect("an operation panicked while it held the tables");
        let now = self.clock.now();
        state.moved.clear();
        (state, now)
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(self.begin().1)
    }

    fn next_id(&self) -> TaskId {
        let (mut state, now) = self.begin();
        state.next_id(now)
    }

    async fn submit_task(&self, task: NewTask) -> Result<Submitted, StoreError> {
        let (mut state, now) = self.begin();
        Ok(state.submit(&[task], now)?[0])
    }

    async fn submit_tasks(&self, tasks: Vec<NewTask>) -> Result<Vec<Submitted>, StoreError> {
        let (mut state, now) = self.begin();
        state.submit(&tasks, now)
    }

    async fn submit_and_claim(
        &self,
        task: NewTask,
        request: &ClaimRequest,
    ) -> Result<(Submitted, Vec<Task>), StoreError> {
        let (mut state, now) = self.begin();
        // Refused before anything is made.
        state.claim(
            &ClaimRequest {
                queues: Vec::new(),
                ..request.clone()
            },
            now,
        )?;
        let submitted = state.submit(&[task], now)?[0];
        Ok((submitted, state.claim(request, now)?))
    }

    async fn register_node(
        &self,
        id: NodeId,
        name: &str,
        host: &str,
        serves: Option<&Serves>,
    ) -> Result<(), StoreError> {
        self.of_node("register_node", |state, now| {
            state.register_node(id, name, host, serves, now)
        })
        .await
    }

    async fn heartbeat_node(
        &self,
        id: NodeId,
        leases: &[Lease],
    ) -> Result<Vec<(Lease, Verdict)>, StoreError> {
        self.of_node("heartbeat_node", |state, now| {
            state.heartbeat(id, leases, now)
        })
        .await
    }

    async fn hand_back_strays(
        &self,
        node: NodeId,
        held: &[Lease],
        older_than_ms: u64,
    ) -> Result<Vec<TaskId>, StoreError> {
        self.of_node("hand_back_strays", |state, now| {
            state.hand_back_strays(node, held, older_than_ms, now)
        })
        .await
    }

    async fn retire_node(&self, id: NodeId) -> Result<(), StoreError> {
        self.of_node("retire_node", |state, _| {
            state.nodes.remove(&id);
            Ok(())
        })
        .await
    }

    async fn claim_tasks(&self, request: &ClaimRequest) -> Result<Vec<Task>, StoreError> {
        self.of_node("claim_tasks", |state, now| state.claim(request, now))
            .await
    }

    async fn claim_named(&self, request: &ClaimNamed) -> Result<Vec<Task>, StoreError> {
        self.of_node("claim_named", |state, now| state.claim_named(request, now))
            .await
    }

    async fn claim_kept(&self, request: &ClaimRequest) -> Result<Vec<Task>, StoreError> {
        self.of_node("claim_kept", |state, now| state.claim_kept(request, now))
            .await
    }

    async fn save_progress(&self, reports: &[(Lease, Json)]) -> Result<Vec<Verdict>, StoreError> {
        let (mut state, now) = self.begin();
        state.save_progress(reports, now)
    }

    async fn save_checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Json,
    ) -> Result<Verdict, StoreError> {
        if let Some(watch) = &self.checkpoint_watch {
            watch.before().await;
        }
        let verdict = {
            let (mut state, now) = self.begin();
            state.save_checkpoint(lease, checkpoint, now)
        };
        if let Some(watch) = self
            .checkpoint_watch
            .as_ref()
            .filter(|_| verdict.is_accepted())
        {
            watch.after().await;
        }
        Ok(verdict)
    }

    async fn append_logs(&self, lines: &[LogLine]) -> Result<Vec<Verdict>, StoreError> {
        let (mut state, now) = self.begin();
        state.append_logs(lines, now)
    }

    async fn note_artifact(
        &self,
        note: &ArtifactNote,
    ) -> Result<(Verdict, Option<ArtifactRecord>), StoreError> {
        let (mut state, now) = self.begin();
        state.note_artifact(note, now)
    }

    async fn finish_tasks(&self, reports: &[Report]) -> Result<Vec<Verdict>, StoreError> {
        let refused = self
            .refused_finishes
            .lock()
            .expect("no other operation holds it")
            .pop_front();
        if let Some(error) = refused {
            return Err(error);
        }
        self.of_node("finish_tasks", |state, now| state.finish(reports, now))
            .await
    }

    async fn cancel_task(&self, access: &Access, id: TaskId) -> Result<Cancelled, StoreError> {
        let (mut state, now) = self.begin();
        state.cancel_task(access, id, now)
    }

    async fn retry_task(
        &self,
        access: &Access,
        id: TaskId,
        scope: RetryScope,
    ) -> Result<(), StoreError> {
        let (mut state, now) = self.begin();
        state.retry_task(access, id, scope, now)
    }

    async fn reschedule_task(
        &self,
        access: &Access,
        id: TaskId,
        change: &Reschedule,
    ) -> Result<Task, StoreError> {
        let (mut state, now) = self.begin();
        state.reschedule_task(access, id, change, now)
    }

    async fn change_tasks(&self, request: &BulkRequest) -> Result<BulkOutcome, StoreError> {
        let (mut state, now) = self.begin();
        state.change_tasks(request, now)
    }

    async fn pause_queue(&self, name: &str) -> Result<(), StoreError> {
        let (mut state, now) = self.begin();
        state.set_paused(name, Some(now))
    }

    async fn resume_queue(&self, name: &str) -> Result<(), StoreError> {
        self.begin().0.set_paused(name, None)
    }

    async fn take_duty(
        &self,
        duty: &str,
        node: NodeId,
        ttl_ms: u64,
    ) -> Result<Option<DutyLease>, StoreError> {
        self.of_node("take_duty", |state, now| {
            state.take_duty(duty, node, ttl_ms, now)
        })
        .await
    }

    async fn declare_others_dead(&self, survivor: NodeId) -> Result<(), StoreError> {
        let (mut state, now) = self.begin();
        state.declare_others_dead(survivor, now);
        Ok(())
    }

    async fn rescue_tasks(&self, request: &RescueRequest) -> Result<Rescued, StoreError> {
        self.of_node("rescue_tasks", |state, now| state.rescue(request, now))
            .await
    }

    async fn expire_tasks(&self, overdue: &Overdue, limit: usize) -> Result<Expired, StoreError> {
        let (mut state, now) = self.begin();
        state.expire(overdue, limit, now)
    }

    async fn list_due(&self, queue: &str, limit: usize) -> Result<Vec<Bell>, StoreError> {
        let (state, now) = self.begin();
        state.list_due(queue, limit, now)
    }

    async fn list_heads(&self) -> Result<Vec<QueueHead>, StoreError> {
        let (state, now) = self.begin();
        Ok(state.list_heads(now))
    }

    async fn bring_forward(
        &self,
        queue: &str,
        waited_ms: u64,
        most: usize,
    ) -> Result<usize, StoreError> {
        let (mut state, now) = self.begin();
        state.bring_forward(queue, waited_ms, most, now)
    }

    async fn fail_waiting(
        &self,
        ids: &[TaskId],
        failure: &Failure,
    ) -> Result<Vec<TaskId>, StoreError> {
        let (mut state, now) = self.begin();
        state.fail_waiting(ids, failure, now)
    }

    async fn next_due_at(
        &self,
        queues: &[String],
        task_types: &[String],
    ) -> Result<Option<Timestamp>, StoreError> {
        self.of_node("next_due_at", |state, _| {
            state.next_due_at(queues, task_types)
        })
        .await
    }

    async fn list_prunable(
        &self,
        keep: &Retention,
        after: Option<TaskId>,
        limit: usize,
    ) -> Result<Page<Task>, StoreError> {
        let (state, now) = self.begin();
        state.list_prunable(keep, after, limit, now)
    }

    async fn prune_tasks(&self, keep: &Retention, ids: &[TaskId]) -> Result<usize, StoreError> {
        let (mut state, now) = self.begin();
        state.prune(keep, ids, now)
    }

    async fn list_expired_artifacts(
        &self,
        limit: usize,
    ) -> Result<Vec<ArtifactRecord>, StoreError> {
        let (state, now) = self.begin();
        state.list_expired_artifacts(limit, now)
    }

    async fn note_sweep(&self, swept: &[Swept], retry_ms: u64) -> Result<(), StoreError> {
        let (mut state, now) = self.begin();
        state.note_sweep(swept, retry_ms, now)
    }

    async fn prune_idempotency_keys(&self, limit: usize) -> Result<usize, StoreError> {
        let (mut state, now) = self.begin();
        state.prune_idempotency_keys(limit, now)
    }

    async fn lease_outbox(
        &self,
        limit: usize,
        ttl_ms: u64,
    ) -> Result<Vec<LeasedMessage>, StoreError> {
        let (mut state, now) = self.begin();
        state.lease_outbox(limit, ttl_ms, now)
    }

    async fn count_outbox(&self, limit: usize) -> Result<usize, StoreError> {
        working::check_limit(limit, longhaul_domain::bounds::COUNT)?;
        Ok(self.begin().0.outbox.len().min(limit))
    }

    async fn confirm_outbox(&self, ids: &[i64]) -> Result<(), StoreError> {
        let (mut state, _) = self.begin();
        for id in ids {
            state.outbox.remove(id);
        }
        Ok(())
    }

    async fn fold_tallies(&self, limit: usize) -> Result<usize, StoreError> {
        self.begin().0.fold_tallies(limit)
    }

    async fn create_token(&self, token: &NewAccessToken) -> Result<AccessToken, StoreError> {
        let (mut state, now) = self.begin();
        state.create_token(token, now)
    }

    async fn find_token(&self, id: &str) -> Result<Option<KnownToken>, StoreError> {
        let (state, now) = self.begin();
        Ok(state.find_token(id, now))
    }

    async fn list_tokens(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<AccessToken>, StoreError> {
        self.begin().0.list_tokens(after, limit)
    }

    async fn prune_tokens(&self, limit: usize) -> Result<usize, StoreError> {
        let (mut state, now) = self.begin();
        state.prune_tokens(limit, now)
    }

    async fn touch_token(&self, id: &str) -> Result<(), StoreError> {
        let (mut state, now) = self.begin();
        state.touch_token(id, now);
        Ok(())
    }

    async fn revoke_token(&self, id: &str) -> Result<Option<AccessToken>, StoreError> {
        let (mut state, now) = self.begin();
        Ok(state.revoke_token(id, now))
    }

    async fn get_task(&self, access: &Access, id: TaskId) -> Result<Task, StoreError> {
        self.begin().0.accessible(access, id).cloned()
    }

    async fn list_tasks(
        &self,
        access: &Access,
        filter: &TaskFilter,
        page: &PageRequest,
    ) -> Result<Page<Task>, StoreError> {
        self.begin().0.list_tasks(access, filter, page)
    }

    async fn list_attempts(
        &self,
        access: &Access,
        id: TaskId,
        after: u32,
        limit: usize,
    ) -> Result<Vec<Attempt>, StoreError> {
        self.begin().0.list_attempts(access, id, after, limit)
    }

    async fn count_ahead(
        &self,
        task: &Task,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize, StoreError> {
        self.begin().0.count_ahead(task, now, limit)
    }

    async fn list_logs(
        &self,
        access: &Access,
        id: TaskId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<LogPage, StoreError> {
        self.begin().0.list_logs(access, id, after, limit)
    }

    async fn list_artifacts(
        &self,
        access: &Access,
        id: TaskId,
    ) -> Result<Vec<ArtifactRecord>, StoreError> {
        self.begin().0.list_artifacts(access, id)
    }

    async fn get_artifact(&self, id: ArtifactId) -> Result<ArtifactRecord, StoreError> {
        self.begin().0.get_artifact(id)
    }

    async fn list_queues(&self) -> Result<Vec<Queue>, StoreError> {
        Ok(self.begin().0.list_queues())
    }

    async fn list_nodes(&self) -> Result<Vec<Node>, StoreError> {
        Ok(self.begin().0.nodes.values().cloned().collect())
    }

    async fn read_tallies(&self, filter: &TallyFilter) -> Result<Vec<Tally>, StoreError> {
        Ok(self.begin().0.read_tallies(filter))
    }
}
