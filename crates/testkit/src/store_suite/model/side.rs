//! One store that a history runs on, and the history's names for its contents.
//!
//! Ids, tokens and times differ between stores. A side therefore numbers tasks in the order of
//! submission and counts time in whole spans since the history began. The answers of two sides are
//! then equal exactly when the stores behave the same.

use std::collections::HashMap;

use longhaul_domain::{
    Idempotency, Lease, NewTask, NodeId, QueueName, RetryPolicy, RunAt, Status, StoreError, TaskId,
    Timestamp,
    contract::store::{Access, Moved},
    filter::TaskFilter,
    lifecycle::reschedule::Reschedule,
};
use uuid::Uuid;

use super::operation::{BATCH, Change, Conditions, Draft};
use crate::{fixture::Fixture, names::queue_name, store_suite::support::json};

/// The unit of time of a history, in milliseconds. It is so long that the real duration of a
/// history makes no difference.
pub(super) const SPAN_MS: u64 = 1_000_000;

/// Half a span more, so that the real time between two operations never crosses a boundary.
pub(super) const fn spans_and_a_half(spans: u8) -> u64 {
    spans as u64 * SPAN_MS + SPAN_MS / 2
}

#[derive(Debug)]
pub(super) struct Side {
    pub(super) fixture: Fixture,
    began_at: Timestamp,
    /// How far the history has moved the clock, in spans.
    passed: u64,
    /// All submitted tasks, in order.
    ids: Vec<TaskId>,
    names: HashMap<TaskId, usize>,
    /// All leases of all claims, in order.
    leases: Vec<Lease>,
    nodes: [NodeId; 3],
    started_nodes: u128,
}

impl Side {
    pub(super) async fn new(fixture: Fixture) -> Self {
        let began_at = fixture.store.now().await.unwrap();
        let mut side = Self {
            fixture,
            began_at,
            passed: 0,
            ids: Vec::new(),
            names: HashMap::new(),
            leases: Vec::new(),
            nodes: [NodeId(Uuid::nil()); 3],
            started_nodes: 0,
        };

        for node in 0..3 {
            side.start_node(node).await.unwrap();
        }

        side
    }

    /// Restarts a node: a new id under the old name.
    pub(super) async fn start_node(&mut self, node: u8) -> Result<(), StoreError> {
        self.started_nodes += 1;
        let id = NodeId(Uuid::from_u128(self.started_nodes));
        self.nodes[usize::from(node)] = id;
        self.fixture
            .store
            .register_node(id, &format!("node-{node}"), "host", None)
            .await
    }

    pub(super) fn node(&self, node: u8) -> NodeId {
        self.nodes[usize::from(node)]
    }

    pub(super) fn advance(&mut self, spans: u8) {
        self.passed += u64::from(spans);
        self.fixture.clock.advance_ms(u64::from(spans) * SPAN_MS);
    }

    /// The time in whole spans since the history began.
    pub(super) fn span_of(&self, at: Timestamp) -> i64 {
        (at.as_micros() - self.began_at.as_micros()).div_euclid(SPAN_MS as i64 * 1_000)
    }

    /// The time this many spans, and a half, after the current operation.
    pub(super) fn in_spans(&self, spans: u8) -> Timestamp {
        self.began_at
            .plus_ms(self.passed * SPAN_MS + spans_and_a_half(spans))
    }

    pub(super) fn note_submitted(&mut self, id: TaskId) {
        self.names.insert(id, self.ids.len());
        self.ids.push(id);
    }

    pub(super) fn note_lease(&mut self, lease: Lease) {
        self.leases.push(lease);
    }

    /// All tasks that were submitted.
    pub(super) fn ids(&self) -> &[TaskId] {
        &self.ids
    }

    pub(super) fn leases(&self) -> &[Lease] {
        &self.leases
    }

    /// The history's name for a task.
    pub(super) fn name(&self, id: TaskId) -> String {
        self.names
            .get(&id)
            .map_or_else(|| "an unknown task".to_owned(), |index| format!("#{index}"))
    }

    pub(super) fn names(&self, ids: impl IntoIterator<Item = TaskId>) -> Vec<String> {
        ids.into_iter().map(|id| self.name(id)).collect()
    }

    /// The moves, with the names of the tasks.
    pub(super) fn moves(&self, moved: &[Moved]) -> Vec<String> {
        let one = |moved: &Moved| {
            let name = self.name(moved.task.id);
            format!("{name} {:?} to {:?}", moved.was, moved.task.status)
        };
        moved.iter().map(one).collect()
    }

    pub(super) fn task(&self, number: u8) -> Option<TaskId> {
        (!self.ids.is_empty()).then(|| self.ids[usize::from(number) % self.ids.len()])
    }

    /// A lease, usually one of the last six, because older ones are usually stale.
    pub(super) fn lease(&self, number: u8) -> Option<Lease> {
        let count = self.leases.len();
        let recent = if number < 200 { count.min(6) } else { count };
        (count > 0).then(|| self.leases[count - 1 - usize::from(number) % recent])
    }

    /// The task of the draft with this index in its batch.
    pub(super) fn new_task(&self, draft: &Draft, index: usize, parent: Option<Lease>) -> NewTask {
        // Distinct deadlines expire in the same order in every store.
        let distinct_ms = (BATCH * self.ids.len() + index) as u64;
        let retry = RetryPolicy {
            initial_ms: SPAN_MS,
            factor: 2.0,
            jitter: 0.0,
            max_ms: 3 * SPAN_MS,
        };

        let idempotency = |(key, digest): (u8, u8)| Idempotency {
            key: format!("key-{key}"),
            digest: [digest; 32],
            ttl_ms: spans_and_a_half(1),
        };

        NewTask {
            priority: draft.priority,
            run_at: if draft.delay == 0 {
                RunAt::Now
            } else {
                RunAt::AfterMs(u64::from(draft.delay) * SPAN_MS)
            },
            max_attempts: u32::from(draft.max_attempts),
            timeout_ms: draft.timeout.map(spans_and_a_half),
            deadline_at: draft
                .deadline
                .map(|spans| self.in_spans(spans).plus_ms(distinct_ms)),
            finish_step: draft.finish_step,
            retry,
            idempotency: draft.idempotency.map(idempotency),
            parent,
            ..NewTask::new(
                &owner(draft.owner),
                &kind(draft.kind),
                queue(draft.queue),
                json("{}"),
            )
        }
    }

    pub(super) fn reschedule(&self, change: &Change) -> Reschedule {
        Reschedule {
            run_at: change.run_in.map(|spans| self.in_spans(spans)),
            priority: change.priority,
            max_attempts: change.max_attempts.map(u32::from),
            queue: change.queue.map(queue),
        }
    }

    pub(super) fn filter(&self, conditions: &Conditions) -> TaskFilter {
        let statuses = conditions
            .statuses
            .iter()
            .map(|index| Status::ALL[usize::from(*index)])
            .collect();

        TaskFilter {
            owner: conditions.owner.map(owner),
            statuses,
            task_types: chosen(conditions.kinds, kind),
            queues: chosen(conditions.queues, queue),
            parent_id: conditions.children_of.and_then(|number| self.task(number)),
            ..TaskFilter::default()
        }
    }
}

pub(super) fn access(number: Option<u8>) -> Access {
    number.map_or(Access::All, |number| Access::Owner(owner(number)))
}

fn owner(number: u8) -> String {
    format!("owner-{number}")
}

pub(super) fn kind(number: u8) -> String {
    format!("kind-{number}")
}

pub(super) fn queue(number: u8) -> QueueName {
    queue_name(&format!("queue-{number}"))
}

/// The names for the set bits of a mask.
pub(super) fn chosen<T>(mask: u8, name: fn(u8) -> T) -> Vec<T> {
    (0..2)
        .filter(|bit| mask & (1 << bit) != 0)
        .map(name)
        .collect()
}
