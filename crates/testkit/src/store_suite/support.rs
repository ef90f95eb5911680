//! Short ways to submit, claim, finish and read tasks in the cases.

use longhaul_domain::{
    Attempt, Json, Lease, LeaseToken, LogEntry, NewTask, NodeId, Status, StoreError, TaskId,
    TaskRecord,
    contract::store::{
        Access, AttemptEnd, AttemptReport, ClaimRequest, Failure, RescueRequest, Rescued, Verdict,
    },
    event::LeasedMessage,
    filter::{PageRequest, SortOrder, TaskFilter},
    lifecycle::expire::Overdue,
};
use rand::RngExt;
use uuid::Uuid;

use crate::{fixture::Fixture, names::queue_name};

/// The owner, type and queue of a task, unless a case needs others.
pub(super) const OWNER: &str = "u-1";
pub(super) const KIND: &str = "work";
pub(super) const QUEUE: &str = "lane";
/// Longer than any case takes, so that a node or task is late only after the clock was moved.
pub(super) const HOUR_MS: u64 = 3_600_000;
/// The limit in cases that are not about limits.
pub(super) const MANY: usize = 1_000;

pub(super) fn json(text: &str) -> Json {
    Json::parse("test", text).expect("the JSON of the case is valid")
}

pub(super) fn new_task() -> NewTask {
    NewTask::new(OWNER, KIND, queue_name(QUEUE), json("{}"))
}

/// The value with one change.
pub(super) fn with<T>(mut value: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut value);
    value
}

pub(super) fn random_uuid() -> Uuid {
    Uuid::from_u128(rand::rng().random())
}

pub(super) fn random_node_id() -> NodeId {
    NodeId(random_uuid())
}

pub(super) fn forged(lease: &Lease) -> Lease {
    Lease {
        token: LeaseToken(random_uuid()),
        ..*lease
    }
}

pub(super) fn completed() -> AttemptEnd {
    AttemptEnd::Completed {
        result: Some(json("{\"done\":true}")),
        result_url: None,
    }
}

pub(super) fn failure(message: &str) -> Failure {
    Failure {
        class: "test".to_owned(),
        message: message.to_owned(),
        detail: Some("at line 7".to_owned()),
    }
}

pub(super) fn fatal() -> AttemptEnd {
    AttemptEnd::Failed {
        failure: failure("it broke for good"),
        retry_in_ms: None,
    }
}

pub(super) fn retryable(retry_in_ms: u64) -> AttemptEnd {
    AttemptEnd::Failed {
        failure: failure("it broke"),
        retry_in_ms: Some(retry_in_ms),
    }
}

pub(super) fn snoozed(delay_ms: u64) -> AttemptEnd {
    AttemptEnd::Snoozed {
        reason: Some(failure("too many requests")),
        delay_ms,
    }
}

pub(super) fn lease_of(task: &TaskRecord) -> Lease {
    task.lease().expect("the task is running")
}

pub(super) fn ids_of(tasks: &[TaskRecord]) -> Vec<TaskId> {
    tasks.iter().map(|task| task.id).collect()
}

pub(super) fn claim_request(
    node_id: NodeId,
    queues: &[&str],
    task_types: &[&str],
    limit: usize,
) -> ClaimRequest {
    ClaimRequest {
        node_id,
        host: "host-1".to_owned(),
        queues: queues.iter().map(|name| queue_name(name)).collect(),
        task_types: task_types.iter().map(|name| (*name).to_owned()).collect(),
        limit,
    }
}

/// The name of the field that a store refused.
pub(super) fn refused_field<T: std::fmt::Debug>(answer: Result<T, StoreError>) -> &'static str {
    match answer {
        Err(StoreError::Invalid(invalid)) => invalid.field,
        other => panic!("expected a refused field, got {other:?}"),
    }
}

impl Fixture {
    pub(super) async fn submit(&self, task: NewTask) -> TaskId {
        self.store
            .submit_task(task)
            .await
            .expect("the task is valid")
            .task_id
    }

    pub(super) async fn submit_all(&self, tasks: Vec<NewTask>) -> Vec<TaskId> {
        let answers = self
            .store
            .submit_tasks(tasks)
            .await
            .expect("the tasks are valid");
        answers.into_iter().map(|answer| answer.task_id).collect()
    }

    /// A new registered node.
    pub(super) async fn node(&self) -> NodeId {
        let id = random_node_id();
        self.store
            .register_node(id, "node-1", "host-1", None)
            .await
            .expect("the node is valid");
        id
    }

    pub(super) async fn claim_from(
        &self,
        node: NodeId,
        queues: &[&str],
        kinds: &[&str],
        limit: usize,
    ) -> Vec<TaskRecord> {
        self.store
            .claim_tasks(&claim_request(node, queues, kinds, limit))
            .await
            .expect("the node may claim")
    }

    /// Claims tasks of the usual type and queue.
    pub(super) async fn claim(&self, node: NodeId, limit: usize) -> Vec<TaskRecord> {
        self.claim_from(node, &[QUEUE], &[KIND], limit).await
    }

    /// Claims a task, which must be the next one.
    pub(super) async fn claim_this(&self, node: NodeId, id: TaskId) -> Lease {
        let task = self.task(id).await;
        let claimed = self
            .claim_from(node, &[&task.queue], &[&task.task_type], 1)
            .await;
        assert_eq!(ids_of(&claimed), [id], "this task is the next to claim");

        lease_of(&claimed[0])
    }

    /// Submits a task and claims it on a new node.
    pub(super) async fn start(&self, task: NewTask) -> Lease {
        let id = self.submit(task).await;
        let node = self.node().await;
        self.claim_this(node, id).await
    }

    pub(super) async fn finish(&self, lease: Lease, outcome: AttemptEnd) -> Verdict {
        self.finish_all(vec![AttemptReport {
            lease,
            end: outcome,
        }])
        .await[0]
    }

    pub(super) async fn finish_all(&self, reports: Vec<AttemptReport>) -> Vec<Verdict> {
        let verdicts = self
            .store
            .finish_tasks(&reports)
            .await
            .expect("the reports are valid");
        assert_eq!(verdicts.len(), reports.len(), "each report has a verdict");
        verdicts
    }

    /// Submits children under the lease of their parent.
    pub(super) async fn submit_children(
        &self,
        parent: Lease,
        children: Vec<NewTask>,
    ) -> Vec<TaskId> {
        let children = children.into_iter().map(|child| NewTask {
            parent: Some(parent),
            ..child
        });
        self.submit_all(children.collect()).await
    }

    /// Claims a task and finishes it.
    pub(super) async fn run(&self, id: TaskId, outcome: AttemptEnd) -> Verdict {
        let node = self.node().await;
        let lease = self.claim_this(node, id).await;
        self.finish(lease, outcome).await
    }

    pub(super) async fn task(&self, id: TaskId) -> TaskRecord {
        self.store
            .get_task(&Access::All, id)
            .await
            .expect("the task exists")
    }

    pub(super) async fn status(&self, id: TaskId) -> Status {
        self.task(id).await.status
    }

    pub(super) async fn exists(&self, id: TaskId) -> bool {
        match self.store.get_task(&Access::All, id).await {
            Ok(_) => true,
            Err(StoreError::NotFound) => false,
            Err(error) => panic!("the task could not be read: {error}"),
        }
    }

    pub(super) async fn attempts(&self, id: TaskId) -> Vec<Attempt> {
        self.store
            .list_attempts(&Access::All, id, 0, longhaul_domain::bounds::PAGE_SIZE)
            .await
            .expect("the task exists")
    }

    /// All log lines of a task, page by page.
    pub(super) async fn logs(&self, id: TaskId) -> Vec<LogEntry> {
        let mut all: Vec<LogEntry> = Vec::new();
        let mut after = None;
        loop {
            let page = self
                .store
                .list_logs(&Access::All, id, after, MANY)
                .await
                .expect("the task exists");

            all.extend(page.items);
            assert!(
                all.windows(2).all(|pair| pair[0].number < pair[1].number),
                "numbers only grow"
            );

            match page.next {
                Some(last) => after = Some(last),
                None => return all,
            }
        }
    }

    /// All tasks that match, page by page, oldest first.
    pub(super) async fn list(
        &self,
        access: &Access,
        filter: &TaskFilter,
        order: SortOrder,
        size: usize,
    ) -> Vec<TaskRecord> {
        let mut all = Vec::new();
        let mut page = PageRequest {
            order,
            after: None,
            size,
        };

        loop {
            let found = self
                .store
                .list_tasks(access, filter, &page)
                .await
                .expect("the filter is valid");

            assert!(
                found.items.len() <= size,
                "a page holds at most what was asked for"
            );
            all.extend(found.items);

            match found.next {
                Some(last) => page.after = Some(last),
                None => return all,
            }
        }
    }

    pub(super) async fn all_tasks(&self) -> Vec<TaskRecord> {
        self.list(
            &Access::All,
            &TaskFilter::default(),
            SortOrder::OldestFirst,
            MANY,
        )
        .await
    }

    pub(super) async fn children_of(&self, parent: TaskId) -> Vec<TaskRecord> {
        let filter = TaskFilter {
            parent_id: Some(parent),
            ..TaskFilter::default()
        };
        self.list(&Access::All, &filter, SortOrder::OldestFirst, MANY)
            .await
    }

    /// One rescue pass that declares nodes dead after an hour without heartbeat.
    pub(super) async fn rescue(&self, max_crashes: u32) -> Rescued {
        let request = RescueRequest {
            asker: None,
            lease_ms: HOUR_MS,
            max_crashes,
            limit: MANY,
            host_affinity_ms: 0,
        };

        self.store
            .rescue_tasks(&request)
            .await
            .expect("the request is valid")
    }

    /// One expiry pass for deadlines only.
    pub(super) async fn expire_deadlines(&self) -> usize {
        let never = longhaul_domain::bounds::DURATION_MS;
        let overdue = Overdue {
            silent_ms: never,
            timeout_grace_ms: never,
        };

        self.store
            .expire_tasks(&overdue, MANY)
            .await
            .expect("the request is valid")
            .ended
    }

    /// Takes all messages from the outbox.
    pub(super) async fn drain_outbox(&self) -> Vec<LeasedMessage> {
        let mut all = Vec::new();
        loop {
            let leased = self
                .store
                .lease_outbox(MANY, HOUR_MS)
                .await
                .expect("the request is valid");
            if leased.is_empty() {
                return all;
            }

            let ids: Vec<i64> = leased.iter().map(|message| message.id).collect();
            self.store
                .confirm_outbox(&ids)
                .await
                .expect("the messages exist");
            all.extend(leased);
        }
    }
}
