//! The store: the truth about every task.
//!
//! Each operation is one transaction. What a worker writes is guarded by state, attempt and lease token; what
//! a duty writes by the state that it decided on. An operation whose outcome is unknown (the connection broke)
//! may be repeated as it is: it is then told what the first try did. All times are the store's own clock.

use async_trait::async_trait;

use crate::{
    access_token::{AccessToken, KnownToken, NewAccessToken},
    artifact::{ArtifactNote, ArtifactRecord, Swept},
    attempt::Attempt,
    contract::broker::Bell,
    error::StoreError,
    event::LeasedMessage,
    filter::{Page, PageRequest, Retention, TaskFilter},
    ids::{ArtifactId, NodeId, TaskId},
    json::Json,
    lifecycle::{expire::Overdue, reschedule::Reschedule},
    log::{LogLine, LogPage},
    node::{DutyLease, Node, Serves},
    queue::Queue,
    statistics::{Tally, TallyFilter},
    submission::NewTask,
    task::{Lease, Status, Task, TaskError},
    time::Timestamp,
};

/// Whose tasks an operation may see and change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// One owner's. Another's task does not exist for the caller.
    Owner(String),
    /// All, for administrators and the engine itself.
    All,
}

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
    pub queues: Vec<String>,
    /// The types that the node has registered; others are left for those who know them.
    pub task_types: Vec<String>,
    pub limit: usize,
}

/// A node's request for tasks that it knows by their ids: those of the bells that it has heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimNamed {
    pub node_id: NodeId,
    pub host: String,
    /// The types that the node has registered; others are left for those who know them.
    pub task_types: Vec<String>,
    pub ids: Vec<TaskId>,
}

/// Where the line of those that wait begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueHead {
    pub queue: String,
    /// [`bounds::FORWARD`](crate::bounds::FORWARD) for those that were brought forward.
    pub priority: u8,
    pub task_type: String,
    /// The due time of the first task that waits there.
    pub due_at: Timestamp,
}

/// How an attempt ended, as its worker tells it.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Completed {
        result: Option<Json>,
        result_url: Option<String>,
    },
    /// Without `retry_in_ms` the failure is fatal.
    Failed {
        failure: Failure,
        retry_in_ms: Option<u64>,
    },
    Snoozed {
        reason: Option<Failure>,
        delay_ms: u64,
    },
    HandedBack,
    Cancelled,
}

/// An error as a worker tells it. The store adds time and attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub class: String,
    pub message: String,
    pub detail: Option<String>,
}

impl Failure {
    pub fn at(&self, now: Timestamp, attempt: u32) -> TaskError {
        TaskError::new(
            &self.class,
            &self.message,
            self.detail.as_deref(),
            now,
            attempt,
        )
    }
}

/// A worker's report on one attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub lease: Lease,
    pub outcome: Outcome,
}

/// What became of a fenced write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It counts; the task is now at this status.
    Applied(Status),
    /// It was recorded before, by the same attempt.
    Repeated(Status),
    /// The lease is no longer valid; nothing was written. The task is at this status.
    Stale(Status),
    /// There is no such task.
    Missing,
}

impl Verdict {
    /// Whether the write counts, now or before.
    pub const fn is_accepted(self) -> bool {
        matches!(self, Self::Applied(_) | Self::Repeated(_))
    }
}

/// What a person's retry is about.
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
    pub task: Task,
}

/// What a cancel did.
#[derive(Debug, Clone, PartialEq)]
pub struct Cancelled {
    /// The status that the named task has now.
    pub status: Status,
    /// What moved, in the order of ids: the task and what was open below it, and parents above it that went on. Nothing when
    /// it had ended before.
    pub moved: Vec<Moved>,
}

/// What an expiry did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Expired {
    /// How many tasks were past their deadline, or hung.
    pub ended: usize,
    /// What moved by that: these, and parents above them that went on.
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

/// Which nodes count as dead, and how a rescue goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RescueRequest {
    /// The node that asks, if one does: it lives, however long ago the store says that it beat. A machine that slept, or a
    /// clock that was put forward, makes a silence of which the node itself knows nothing.
    pub asker: Option<NodeId>,
    /// A node whose last heartbeat is older than this is dead, in milliseconds.
    pub lease_ms: u64,
    /// Deaths after which a task is quarantined.
    pub max_crashes: u32,
    /// Tasks that one pass takes, so that a restart does not stampede.
    pub limit: usize,
    /// How long a rescued task is kept for nodes of the host that it ran on, in milliseconds (R23). Others may claim it
    /// afterwards; with 0 they may at once.
    pub keep_for_host_ms: u64,
}

/// What a rescue pass did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rescued {
    pub requeued: Vec<TaskId>,
    pub quarantined: Vec<TaskId>,
}

/// The truth about every task. See the module for what each operation promises.
#[async_trait]
pub trait Store: Send + Sync + std::fmt::Debug {
    /// The time that all decisions of this store go by.
    async fn now(&self) -> Result<Timestamp, StoreError>;

    // Submitting.

    /// An id for a task that is about to be made: later than those given out before.
    fn next_id(&self) -> TaskId;

    /// Makes one task. When this returns, the task is durable.
    async fn submit_task(&self, task: NewTask) -> Result<Submitted, StoreError>;
    /// Makes all of them, in order, or none. Children of one batch have the same parent.
    async fn submit_tasks(&self, tasks: Vec<NewTask>) -> Result<Vec<Submitted>, StoreError>;
    /// Makes one task and claims as [`Self::claim_tasks`] does, both or neither, in one commit where a store can. What is
    /// claimed is what comes first in the order, which may be another task or none.
    async fn submit_and_claim(
        &self,
        task: NewTask,
        request: &ClaimRequest,
    ) -> Result<(Submitted, Vec<Task>), StoreError>;

    // What nodes and their workers write.

    async fn register_node(
        &self,
        id: NodeId,
        name: &str,
        host: &str,
        serves: Option<&Serves>,
    ) -> Result<(), StoreError>;
    /// Renews every lease of the node, and answers with those that are gone. A node that was declared dead
    /// gets [`StoreError::NodeLost`].
    async fn heartbeat_node(
        &self,
        id: NodeId,
        leases: &[Lease],
    ) -> Result<Vec<(Lease, Verdict)>, StoreError>;
    /// Takes from a node the tasks that run on it and that it does not know of: those of a claim whose answer was
    /// lost. They go back to their queue as if the node had handed them back. Answers with their ids, oldest first,
    /// at most [`bounds::MAINTENANCE_BATCH`](crate::bounds::MAINTENANCE_BATCH) of them.
    ///
    /// `held` is every lease that the node still has to do with, and that includes those whose last report is not
    /// answered yet: what it leaves out runs again elsewhere. A node that holds more than fits into one call must not
    /// make it. `older_than_ms` is longer than the node waits for the answer to a claim. A node that claims, runs and reports
    /// nothing any more, because it is about to end, leaves all out and waits for nothing.
    async fn hand_back_strays(
        &self,
        node: NodeId,
        held: &[Lease],
        older_than_ms: u64,
    ) -> Result<Vec<TaskId>, StoreError>;
    /// Forgets a node that has shut down. What it still held counts as crashed.
    async fn retire_node(&self, id: NodeId) -> Result<(), StoreError>;
    /// Takes due tasks: highest priority first, then the longest due, then the oldest. Tasks of paused queues stay.
    async fn claim_tasks(&self, request: &ClaimRequest) -> Result<Vec<Task>, StoreError>;
    /// Takes those of the named tasks that [`Self::claim_tasks`] could take for this node now, from whatever queue, at most
    /// [`bounds::CLAIM_BATCH`](crate::bounds::CLAIM_BATCH), and answers with them in the order of claims. What is unknown,
    /// named twice, early, ended, held, paused, of another type, or being changed at this moment is left out.
    async fn claim_named(&self, request: &ClaimNamed) -> Result<Vec<Task>, StoreError>;
    /// Takes tasks that a rescue has kept for the node's host, as [`Self::claim_tasks`] takes due ones. They are due from
    /// then on.
    async fn claim_kept(&self, request: &ClaimRequest) -> Result<Vec<Task>, StoreError>;
    async fn save_progress(&self, reports: &[(Lease, Json)]) -> Result<Vec<Verdict>, StoreError>;
    async fn save_checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Json,
    ) -> Result<Verdict, StoreError>;
    /// Keeps log lines with their tasks, in the order given, at most [`bounds::LOG_BATCH`](crate::bounds::LOG_BATCH).
    /// A message is cut or mended where no store could keep it, never refused. The tasks themselves do not change: a
    /// line is no sign of life. Of each task the last [`bounds::LOG_LINES`](crate::bounds::LOG_LINES) lines stay, and
    /// for a while up to [`bounds::LOG_SLACK`](crate::bounds::LOG_SLACK) older ones. Unlike other writes, lines that
    /// are written again because their outcome is unknown may be there twice.
    async fn append_logs(&self, lines: &[LogLine]) -> Result<Vec<Verdict>, StoreError>;
    /// Notes a file that the running attempt has put into the artifact store; `None` unless the verdict accepts it. Of
    /// each task at most [`bounds::ARTIFACTS`](crate::bounds::ARTIFACTS) files are noted.
    async fn note_artifact(
        &self,
        note: &ArtifactNote,
    ) -> Result<(Verdict, Option<ArtifactRecord>), StoreError>;
    /// Records the ends of many attempts with their results, history, parents' counters and messages.
    async fn finish_tasks(&self, reports: &[Report]) -> Result<Vec<Verdict>, StoreError>;

    // What people do.

    /// Cancels a task and all below it. One that has ended is left alone. Of many who cancel it at once, one is told that it
    /// moved.
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
    ) -> Result<Task, StoreError>;
    async fn change_tasks(&self, request: &BulkRequest) -> Result<BulkOutcome, StoreError>;
    async fn pause_queue(&self, name: &str) -> Result<(), StoreError>;
    async fn resume_queue(&self, name: &str) -> Result<(), StoreError>;

    // What duties do.

    /// Takes or renews a duty for `ttl_ms`; `None` while another node holds it.
    async fn take_duty(
        &self,
        duty: &str,
        node: NodeId,
        ttl_ms: u64,
    ) -> Result<Option<DutyLease>, StoreError>;
    /// Declares every node but one dead, and their duties free. Only the sole process on a store may say so.
    async fn declare_others_dead(&self, survivor: NodeId) -> Result<(), StoreError>;
    /// Declares silent nodes dead and takes tasks from dead nodes, in one bounded pass.
    async fn rescue_tasks(&self, request: &RescueRequest) -> Result<Rescued, StoreError>;
    /// Ends tasks past their deadline and fails hung attempts, at most `limit` of each.
    async fn expire_tasks(&self, overdue: &Overdue, limit: usize) -> Result<Expired, StoreError>;
    /// The first due tasks of a queue, of all types, in the order of claims; none while it is paused. Tasks that another
    /// process has made or moved a moment ago may be missing for some seconds.
    async fn list_due(&self, queue: &str, limit: usize) -> Result<Vec<Bell>, StoreError>;
    /// For each queue, priority and type that a due task waits in, paused or not, when the first of them became due; sorted.
    /// What another process did a moment ago may be missing for some seconds.
    async fn list_heads(&self) -> Result<Vec<QueueHead>, StoreError>;
    /// Puts up to `most` tasks of a queue that have waited for longer than `waited_ms` to be claimed before all others of it,
    /// the longest waiting first. Of each type no more than that stand there at a time, so that a type which nobody serves
    /// leaves room for the others. They keep their priority, and lose the place with their next change. Of each type and
    /// priority only the first [`bounds::AGING_LOOK`](crate::bounds::AGING_LOOK) are looked at. Answers with how many were
    /// put there.
    async fn bring_forward(
        &self,
        queue: &str,
        waited_ms: u64,
        most: usize,
    ) -> Result<usize, StoreError>;
    /// Fails tasks that wait to be claimed, due or not: they cannot be brought to any node. Answers with those that were
    /// failed; what is anywhere else stays as it is.
    async fn fail_waiting(
        &self,
        ids: &[TaskId],
        failure: &Failure,
    ) -> Result<Vec<TaskId>, StoreError>;
    /// When the next task of these queues and types is due; in the past when one waits already.
    async fn next_due_at(
        &self,
        queues: &[String],
        task_types: &[String],
    ) -> Result<Option<Timestamp>, StoreError>;
    /// The tasks that [`Store::prune_tasks`] would remove, from `after` on, for export before they go.
    async fn list_prunable(
        &self,
        keep: &Retention,
        after: Option<TaskId>,
        limit: usize,
    ) -> Result<Page<Task>, StoreError>;
    /// Removes those of the tasks that are old enough, with all below them. Answers with how many rows went. Their files
    /// are to be swept at once.
    async fn prune_tasks(&self, keep: &Retention, ids: &[TaskId]) -> Result<usize, StoreError>;
    /// Files that are to be deleted now, published or not, the longest due first.
    async fn list_expired_artifacts(&self, limit: usize)
    -> Result<Vec<ArtifactRecord>, StoreError>;
    /// Notes which files were deleted. Those that were not are counted and due again after `retry_ms`. What is known of a
    /// deleted file goes with its task.
    async fn note_sweep(&self, swept: &[Swept], retry_ms: u64) -> Result<(), StoreError>;
    /// Removes idempotency keys whose promise has run out, at most `limit`.
    async fn prune_idempotency_keys(&self, limit: usize) -> Result<usize, StoreError>;
    /// Hands out messages that nobody holds for `ttl_ms`, oldest first.
    async fn lease_outbox(
        &self,
        limit: usize,
        ttl_ms: u64,
    ) -> Result<Vec<LeasedMessage>, StoreError>;
    /// Removes messages that the broker has confirmed.
    async fn confirm_outbox(&self, ids: &[i64]) -> Result<(), StoreError>;
    /// Messages that wait for their confirmation, held or not. Counting stops at `limit`.
    async fn count_outbox(&self, limit: usize) -> Result<usize, StoreError>;
    /// Folds appended tallies into their sums. Answers with how many lines were folded.
    async fn fold_tallies(&self, limit: usize) -> Result<usize, StoreError>;

    // Who may call.

    /// Makes a token known. The same again, after an outcome that was unknown, changes nothing; another token with the
    /// same id is refused.
    async fn create_token(&self, token: &NewAccessToken) -> Result<AccessToken, StoreError>;
    /// The token with this id, whatever it is good for, and the store's time.
    async fn find_token(&self, id: &str) -> Result<Option<KnownToken>, StoreError>;
    /// Tokens in the order of their ids: those after `after`, at most `limit`.
    async fn list_tokens(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<AccessToken>, StoreError>;
    /// Notes that a token is used, unless that was noted in the last
    /// [`TOUCH_EVERY_MS`](crate::access_token::TOUCH_EVERY_MS).
    async fn touch_token(&self, id: &str) -> Result<(), StoreError>;
    /// Removes tokens that ended [`KEEP_ENDED_MS`](crate::access_token::KEEP_ENDED_MS) ago or earlier, at most `limit`, and
    /// answers with their number.
    async fn prune_tokens(&self, limit: usize) -> Result<usize, StoreError>;
    /// Revokes a token for good. Answers with it, or with nothing when there is none.
    async fn revoke_token(&self, id: &str) -> Result<Option<AccessToken>, StoreError>;

    // Reading.

    async fn get_task(&self, access: &Access, id: TaskId) -> Result<Task, StoreError>;
    async fn list_tasks(
        &self,
        access: &Access,
        filter: &TaskFilter,
        page: &PageRequest,
    ) -> Result<Page<Task>, StoreError>;
    /// The attempts of a task, the first one first: those after number `after`, at most `limit`.
    async fn list_attempts(
        &self,
        access: &Access,
        id: TaskId,
        after: u32,
        limit: usize,
    ) -> Result<Vec<Attempt>, StoreError>;
    /// The log lines of a task, oldest first: those after number `after`, at most `limit`. What comes later has higher
    /// numbers than what is there, so a reader who goes on after the last number misses nothing that is kept.
    async fn list_logs(
        &self,
        access: &Access,
        id: TaskId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<LogPage, StoreError>;
    /// The published files of a task, the oldest first: those of attempts whose result was accepted.
    async fn list_artifacts(
        &self,
        access: &Access,
        id: TaskId,
    ) -> Result<Vec<ArtifactRecord>, StoreError>;
    /// A published file, whoever asks: who may is decided by the signature of the URL.
    async fn get_artifact(&self, id: ArtifactId) -> Result<ArtifactRecord, StoreError>;
    /// Tasks of the same queue that are due at `now` and would be claimed before this one, those that were brought forward
    /// among them. Counting stops at `limit`.
    async fn count_ahead(
        &self,
        task: &Task,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize, StoreError>;
    async fn list_queues(&self) -> Result<Vec<Queue>, StoreError>;
    async fn list_nodes(&self) -> Result<Vec<Node>, StoreError>;
    /// Counts of the present, or statistics of past hours; sorted by key.
    async fn read_tallies(&self, filter: &TallyFilter) -> Result<Vec<Tally>, StoreError>;
}
