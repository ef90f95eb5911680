//! One store that a history runs on, and the history's names for what is in it.
//!
//! Ids, tokens and times differ from store to store. A side therefore calls tasks by the order in which they
//! were made, and tells times in whole spans since the history began; answers of two sides are then equal
//! exactly when the stores behave alike.

use std::collections::HashMap;

use longhaul_domain::{
    Idempotency, Lease, NewTask, NodeId, RetryPolicy, RunAt, Status, StoreError, TaskId, Timestamp,
    contract::store::{Access, Moved},
    filter::TaskFilter,
    lifecycle::reschedule::Reschedule,
};
use uuid::Uuid;

use super::operation::{BATCH, Change, Conditions, Draft};
use crate::{fixture::Fixture, store_suite::support::json};

/// The unit of time of a history, in milliseconds: so long that the time that a history really takes never
/// makes a difference.
pub(super) const SPAN_MS: u64 = 1_000_000;

/// Half a span keeps what happens between two steps of the clock away from the edge.
pub(super) const fn spans_and_a_half(spans: u8) -> u64 {
    spans as u64 * SPAN_MS + SPAN_MS / 2
}

#[derive(Debug)]
pub(super) struct Side {
    pub(super) fixture: Fixture,
    began_at: Timestamp,
    /// How far the history has moved the clock, in spans.
    passed: u64,
    /// In the order in which they were made.
    ids: Vec<TaskId>,
    names: HashMap<TaskId, usize>,
    /// All that was ever handed out.
    leases: Vec<Lease>,
    nodes: [NodeId; 3],
    started_nodes: u128,
}

impl Side {
    pub(super) async fn new(fixture: Fixture) -> Self {
        let began_at = fixture.store.now().await.unwrap();
        let nodes = [NodeId(Uuid::nil()); 3];
        let (ids, names, leases) = (Vec::new(), HashMap::new(), Vec::new());
        let mut side = Self {
            fixture,
            began_at,
            passed: 0,
            ids,
            names,
            leases,
            nodes,
            started_nodes: 0,
        };
        for node in 0..3 {
            side.start_node(node).await.unwrap();
        }
        side
    }

    /// A process starts in the node's place, under a new boot id and the old name.
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

    /// The moment that lies so many spans, and a half, after the step.
    pub(super) fn in_spans(&self, spans: u8) -> Timestamp {
        self.began_at
            .plus_ms(self.passed * SPAN_MS + spans_and_a_half(spans))
    }

    pub(super) fn note_made(&mut self, id: TaskId) {
        self.names.insert(id, self.ids.len());
        self.ids.push(id);
    }

    pub(super) fn note_lease(&mut self, lease: Lease) {
        self.leases.push(lease);
    }

    /// All tasks that were ever made.
    pub(super) fn ids(&self) -> &[TaskId] {
        &self.ids
    }

    pub(super) fn leases(&self) -> &[Lease] {
        &self.leases
    }

    /// What the history calls a task.
    pub(super) fn name(&self, id: TaskId) -> String {
        self.names.get(&id).map_or_else(
            || "a task that was never made".to_owned(),
            |index| format!("#{index}"),
        )
    }

    pub(super) fn names(&self, ids: impl IntoIterator<Item = TaskId>) -> Vec<String> {
        ids.into_iter().map(|id| self.name(id)).collect()
    }

    /// What moved, by name.
    pub(super) fn moves(&self, moved: &[Moved]) -> Vec<String> {
        moved
            .iter()
            .map(|one| {
                format!(
                    "{} {:?} to {:?}",
                    self.name(one.task.id),
                    one.was,
                    one.task.status
                )
            })
            .collect()
    }

    pub(super) fn task(&self, number: u8) -> Option<TaskId> {
        (!self.ids.is_empty()).then(|| self.ids[usize::from(number) % self.ids.len()])
    }

    /// One of the leases, mostly of the last ones: older ones are mostly stale.
    pub(super) fn lease(&self, number: u8) -> Option<Lease> {
        let count = self.leases.len();
        let recent = if number < 200 { count.min(6) } else { count };
        (count > 0).then(|| self.leases[count - 1 - usize::from(number) % recent])
    }

    /// The task of a draft that stands at `place` in its batch.
    pub(super) fn new_task(&self, draft: &Draft, place: usize, parent: Option<Lease>) -> NewTask {
        // Some milliseconds keep deadlines apart, so that their order does not depend on the store.
        let apart_ms = (BATCH * self.ids.len() + place) as u64;
        let retry = RetryPolicy {
            initial_ms: SPAN_MS,
            factor: 2.0,
            jitter: 0.0,
            max_ms: 3 * SPAN_MS,
        };
        let promise = |(key, digest): (u8, u8)| Idempotency {
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
                .map(|spans| self.in_spans(spans).plus_ms(apart_ms)),
            finish_step: draft.finish_step,
            retry,
            idempotency: draft.promise.map(promise),
            parent,
            ..NewTask::new(
                &owner(draft.owner),
                &kind(draft.kind),
                &queue(draft.queue),
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

pub(super) fn queue(number: u8) -> String {
    format!("queue-{number}")
}

/// The names that the bits of a mask stand for.
pub(super) fn chosen(mask: u8, name: fn(u8) -> String) -> Vec<String> {
    (0..2)
        .filter(|bit| mask & (1 << bit) != 0)
        .map(name)
        .collect()
}
