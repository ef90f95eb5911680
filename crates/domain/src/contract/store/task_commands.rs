//! What changes the status of a task.

use async_trait::async_trait;

use super::{Access, AttemptReport, Failure, Verdict};
use crate::{
    error::StoreError,
    filter::TaskFilter,
    ids::{NodeId, TaskId},
    lifecycle::{expire::Overdue, reschedule::Reschedule},
    names::QueueName,
    submission::NewTask,
    task::{Status, TaskRecord},
};

/// The answer to a submit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submitted {
    pub task_id: TaskId,
    /// Whether an idempotency key led to a task that was made before.
    pub repeated: bool,
}

/// A node's request for work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRequest {
    pub node_id: NodeId,
    pub host: String,
    pub queues: Vec<QueueName>,
    /// The types that the node has registered; tasks of other types stay.
    pub task_types: Vec<String>,
    pub limit: usize,
}

/// A node's request for tasks that it knows by their ids, from the hints that it received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimNamed {
    pub node_id: NodeId,
    pub host: String,
    /// The types that the node has registered; tasks of other types stay.
    pub task_types: Vec<String>,
    pub ids: Vec<TaskId>,
}

/// What a manual retry covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryScope {
    /// The task itself, from its last checkpoint.
    Task,
    /// Only the children that failed; the good ones keep their results.
    FailedChildren,
}

/// A task that an operation has moved.
#[derive(Debug, Clone, PartialEq)]
pub struct Moved {
    pub was: Status,
    /// As it is now, at another status than before.
    pub task: TaskRecord,
}

/// What a cancel did.
#[derive(Debug, Clone, PartialEq)]
pub struct Cancelled {
    /// The status that the named task has now.
    pub status: Status,
    /// What moved, in the order of ids: the task, what was open below it, and parents above it that
    /// continued. Nothing when it had ended before.
    pub moved: Vec<Moved>,
}

/// What an expiry did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Expired {
    /// How many tasks were past their deadline, or hung.
    pub ended: usize,
    /// What moved by that: these, and parents above them that continued.
    pub moved: Vec<Moved>,
}

/// One change to all tasks that match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BulkChange {
    Cancel,
    Retry,
    Reschedule(Reschedule),
}

/// One step of a bulk change: the tasks that match, at most `limit` of them, older ones first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BulkRequest {
    pub access: Access,
    pub filter: TaskFilter,
    pub change: BulkChange,
    /// Types whose running tasks a cancel leaves alone: those that are not cancellable.
    pub spared: Vec<String>,
    /// Where the step before ended.
    pub after: Option<TaskId>,
    pub limit: usize,
}

/// What a step of a bulk change did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BulkOutcome {
    pub matched: usize,
    pub changed: usize,
    /// Where the next step starts; `None` when all is done.
    pub next: Option<TaskId>,
}

/// Which nodes count as dead, and how their tasks are rescued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RescueRequest {
    /// The node that asks, if one does. It is alive, whatever its last heartbeat says: a machine
    /// that slept, or a clock that was moved, makes a silence that the node knows nothing of.
    pub asker: Option<NodeId>,
    /// A node whose last heartbeat is older than this is dead, in milliseconds.
    pub lease_ms: u64,
    /// Deaths after which a task is quarantined.
    pub max_crashes: u32,
    /// Tasks that one pass takes, so that a restart does not stampede.
    pub limit: usize,
    /// How long only nodes of the host that a rescued task ran on may claim it, in milliseconds;
    /// with 0, any node may at once.
    pub host_affinity_ms: u64,
}

/// What a rescue pass did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rescued {
    pub requeued: Vec<TaskId>,
    pub quarantined: Vec<TaskId>,
}

/// Every change of a task's status.
#[async_trait]
pub trait TaskCommands: Send + Sync {
    /// An id for a task that is about to be made: later than those given out before.
    fn next_id(&self) -> TaskId;

    /// Makes one task. When this returns, the task is durable.
    async fn submit_task(&self, task: NewTask) -> Result<Submitted, StoreError>;

    /// Makes all of them, in order, or none. Children of one batch have the same parent.
    async fn submit_tasks(&self, tasks: Vec<NewTask>) -> Result<Vec<Submitted>, StoreError>;

    /// Makes one task and claims as [`Self::claim_tasks`] does, both or neither, in one commit
    /// where a store can. What is claimed is what comes first in the order, which may be another
    /// task or none.
    async fn submit_and_claim(
        &self,
        task: NewTask,
        request: &ClaimRequest,
    ) -> Result<(Submitted, Vec<TaskRecord>), StoreError>;

    /// Takes due tasks: highest priority first, then the longest due, then the oldest. Tasks of
    /// paused queues stay.
    async fn claim_tasks(&self, request: &ClaimRequest) -> Result<Vec<TaskRecord>, StoreError>;

    /// Takes those of the named tasks that [`Self::claim_tasks`] could take for this node now, from
    /// any queue, at most [`bounds::CLAIM_BATCH`](crate::bounds::CLAIM_BATCH), and answers with
    /// them in the order of claims. Left out is what is unknown, named twice, early, ended,
    /// claimed, paused, of another type, reserved for another host, or being changed at this
    /// moment.
    async fn claim_named(&self, request: &ClaimNamed) -> Result<Vec<TaskRecord>, StoreError>;

    /// Takes tasks that a rescue has reserved for the node's host, as [`Self::claim_tasks`] takes
    /// due ones. They are due from then on.
    async fn claim_host_affinity(
        &self,
        request: &ClaimRequest,
    ) -> Result<Vec<TaskRecord>, StoreError>;

    /// Records the ends of many attempts with their results, history, parents' counters and
    /// messages.
    async fn finish_tasks(&self, reports: &[AttemptReport]) -> Result<Vec<Verdict>, StoreError>;

    /// Cancels a task and all below it. One that has ended is left alone. If several callers cancel
    /// it at once, one of them gets the moves.
    async fn cancel_task(&self, access: &Access, id: TaskId) -> Result<Cancelled, StoreError>;

    async fn retry_task(
        &self,
        access: &Access,
        id: TaskId,
        scope: RetryScope,
    ) -> Result<(), StoreError>;

    async fn reschedule_task(
        &self,
        access: &Access,
        id: TaskId,
        change: &Reschedule,
    ) -> Result<TaskRecord, StoreError>;

    async fn change_tasks(&self, request: &BulkRequest) -> Result<BulkOutcome, StoreError>;

    /// Declares silent nodes dead and takes tasks from dead nodes, in one bounded pass.
    async fn rescue_tasks(&self, request: &RescueRequest) -> Result<Rescued, StoreError>;

    /// Ends tasks past their deadline and fails hung attempts, at most `limit` of each.
    async fn expire_tasks(&self, overdue: &Overdue, limit: usize) -> Result<Expired, StoreError>;

    /// Fails tasks that wait to be claimed, due or not, because no node can receive them. Answers
    /// with those that were failed; tasks at another status stay as they are.
    async fn fail_waiting(
        &self,
        ids: &[TaskId],
        failure: &Failure,
    ) -> Result<Vec<TaskId>, StoreError>;
}
