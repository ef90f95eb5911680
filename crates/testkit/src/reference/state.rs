//! The tables of the reference store, and how a decided change is written to them.
//!
//! Everything that belongs to a change is written here: the row, the history, the task counts, the
//! outbox messages and the parents' counters. All decisions come from the domain's lifecycle.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use longhaul_domain::{
    AccessToken, Attempt, LogEntry, NodeId, NodeRecord, QueueName, Status, TaskId, TaskIdSequence,
    TaskRecord, Timestamp,
    access_token::TokenDigest,
    artifact::ArtifactRecord,
    bounds,
    contract::store::Moved,
    event::{OutboxMessage, OutboxPolicy},
    ids::ArtifactId,
    lifecycle::{
        Transition, cancel,
        child_ended::{self, ChildMove},
    },
    node::MaintenanceLease,
    statistics::{CountSheet, TaskCount},
};
use rand::{RngExt, rngs::StdRng};

/// An idempotency key and the task that it leads to.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdempotencyRow {
    pub(super) task_id: TaskId,
    pub(super) digest: [u8; 32],
    pub(super) expires_at: Timestamp,
}

/// A message of the outbox, and until when a relay has leased it.
#[derive(Debug)]
pub(super) struct OutboxRow {
    pub(super) message: OutboxMessage,
    pub(super) tries: u32,
    pub(super) leased_until: Option<Timestamp>,
}

/// All tables of the store.
#[derive(Debug)]
pub(super) struct State {
    outbox_policy: OutboxPolicy,
    pub(super) random: StdRng,
    pub(super) ids: TaskIdSequence,
    pub(super) tasks: BTreeMap<TaskId, TaskRecord>,
    /// The claimable tasks, in the order of claims.
    pub(super) claimable: BTreeSet<(Reverse<u8>, Timestamp, TaskId)>,
    /// The claimable tasks that were promoted.
    pub(super) promoted: BTreeSet<TaskId>,
    /// Tasks that only one host may claim until a time, which is their due time.
    pub(super) host_affinity: BTreeMap<TaskId, (String, Timestamp)>,
    pub(super) children: BTreeMap<TaskId, BTreeSet<TaskId>>,
    /// The tasks that this operation has changed, with their status before.
    pub(super) moved: BTreeMap<TaskId, Status>,
    pub(super) attempts: BTreeMap<(TaskId, u32), Attempt>,
    pub(super) logs: BTreeMap<TaskId, Vec<LogEntry>>,
    pub(super) last_log_number: u64,
    /// Files, and when each has to be swept.
    pub(super) artifacts: BTreeMap<ArtifactId, (ArtifactRecord, Option<Timestamp>)>,
    /// Every known queue, and since when it is paused.
    pub(super) queues: BTreeMap<QueueName, Option<Timestamp>>,
    pub(super) nodes: BTreeMap<NodeId, NodeRecord>,
    pub(super) idempotency_keys: BTreeMap<(String, String), IdempotencyRow>,
    pub(super) maintenance: BTreeMap<String, MaintenanceLease>,
    pub(super) tokens: BTreeMap<String, (AccessToken, TokenDigest)>,
    pub(super) outbox: BTreeMap<i64, OutboxRow>,
    last_message_id: i64,
    pub(super) count_deltas: Vec<TaskCount>,
    pub(super) counts: CountSheet,
}

impl State {
    pub(super) fn new(outbox_policy: OutboxPolicy, random: StdRng) -> Self {
        Self {
            outbox_policy,
            random,
            ids: TaskIdSequence::default(),
            tasks: BTreeMap::new(),
            claimable: BTreeSet::new(),
            promoted: BTreeSet::new(),
            host_affinity: BTreeMap::new(),
            children: BTreeMap::new(),
            moved: BTreeMap::new(),
            attempts: BTreeMap::new(),
            logs: BTreeMap::new(),
            last_log_number: 0,
            artifacts: BTreeMap::new(),
            queues: BTreeMap::new(),
            nodes: BTreeMap::new(),
            idempotency_keys: BTreeMap::new(),
            maintenance: BTreeMap::new(),
            tokens: BTreeMap::new(),
            outbox: BTreeMap::new(),
            last_message_id: 0,
            count_deltas: Vec::new(),
            counts: CountSheet::default(),
        }
    }

    pub(super) fn next_id(&mut self, now: Timestamp) -> TaskId {
        let gap = self.random.random();
        self.ids.next_id(now, gap)
    }

    /// Writes a decided change and updates all ancestors that it moves.
    pub(super) fn apply(&mut self, transition: Transition, now: Timestamp) {
        if let Some((parent, step)) = self.apply_alone(transition) {
            self.count_children(parent, &[step], now);
        }
    }

    /// Updates a parent's counters after moves of its children.
    pub(super) fn count_children(&mut self, parent: TaskId, moves: &[ChildMove], now: Timestamp) {
        let parent = &self.tasks[&parent];
        let decided = child_ended::decide(parent, moves, now);
        let transition = decided.expect("moves of existing children add none");
        self.apply(transition, now);
    }

    /// Writes a decided change. Returns the move that the parent has to count.
    pub(super) fn apply_alone(&mut self, transition: Transition) -> Option<(TaskId, ChildMove)> {
        let Transition {
            after,
            archived,
            event,
        } = transition;

        if let Some(attempt) = archived {
            // The first entry says how the attempt ended. Later ones only repeat it.
            self.attempts
                .entry((attempt.task_id, attempt.attempt))
                .or_insert(attempt);
        }

        if let Some(event) = event {
            for message in self.outbox_policy.messages(&after, event) {
                self.post(message);
            }
        }

        let before = self.write(&after);
        let mut sheet = CountSheet::default();
        match &before {
            Some(before) => sheet.record_move(before, &after),
            None => sheet.count(&after.queue, &after.task_type, after.status, 1),
        }

        self.count_deltas.extend(sheet.into_task_counts());

        let step = ChildMove::between(before.map(|task| task.status), after.status)?;
        Some((after.parent_id?, step))
    }

    fn post(&mut self, message: OutboxMessage) {
        self.last_message_id += 1;
        self.outbox.insert(
            self.last_message_id,
            OutboxRow {
                message,
                tries: 0,
                leased_until: None,
            },
        );
    }

    /// Replaces the row and its index entries. Returns the row as it was.
    fn write(&mut self, after: &TaskRecord) -> Option<TaskRecord> {
        let before = self.tasks.insert(after.id, after.clone());
        if let Some(before) = &before {
            self.moved.entry(after.id).or_insert(before.status);
            self.claimable.remove(&(
                Reverse(self.claim_priority(before)),
                before.due_at,
                before.id,
            ));
            self.promoted.remove(&before.id);
        }

        if after.status.is_claimable() {
            self.claimable
                .insert((Reverse(after.priority), after.due_at, after.id));
        }
        if let Some(parent) = after.parent_id {
            self.children.entry(parent).or_default().insert(after.id);
        }

        self.queues.entry(after.queue.clone()).or_default();
        before
    }

    /// The priority by which a waiting task is claimed: its own, unless it was promoted.
    pub(super) fn claim_priority(&self, task: &TaskRecord) -> u8 {
        if self.promoted.contains(&task.id) {
            bounds::FORWARD
        } else {
            task.priority
        }
    }

    /// The status changes of this operation since the last call.
    pub(super) fn take_moved(&mut self) -> Vec<Moved> {
        let mut moved = Vec::new();
        for (id, was) in std::mem::take(&mut self.moved) {
            let task = &self.tasks[&id];
            if was != task.status {
                moved.push(Moved {
                    was,
                    task: task.clone(),
                });
            }
        }

        moved
    }

    /// Removes a row with its history and its log, and subtracts it from the counts.
    pub(super) fn remove(&mut self, id: TaskId, now: Timestamp) {
        let task = self.tasks.remove(&id).expect("the caller has just read it");
        self.children.remove(&id);
        self.attempts.retain(|(task_id, _), _| *task_id != id);
        self.logs.remove(&id);
        self.expire_artifacts(id, now);

        let mut sheet = CountSheet::default();
        sheet.count(&task.queue, &task.task_type, task.status, -1);
        self.count_deltas.extend(sheet.into_task_counts());
    }

    pub(super) fn children_of(&self, id: TaskId) -> Vec<TaskId> {
        let children = self.children.get(&id);
        children.into_iter().flatten().copied().collect()
    }

    /// All descendants of a task, level by level.
    pub(super) fn descendants_of(&self, id: TaskId) -> Vec<TaskId> {
        let mut found = self.children_of(id);
        let mut next = 0;
        while let Some(id) = found.get(next) {
            found.extend(self.children_of(*id));
            next += 1;
        }

        found
    }

    /// Writes the decided cancel of a task and cancels its open descendants, deepest first.
    pub(super) fn cancel_tree(&mut self, root: Transition, now: Timestamp) {
        let descendants = self.descendants_of(root.after.id);
        let deepest_first = descendants.into_iter().rev();
        let cancelled = deepest_first.filter_map(|id| cancel::decide(&self.tasks[&id], now));
        let transitions: Vec<Transition> = cancelled.chain([root]).collect();

        let mut moves: BTreeMap<TaskId, Vec<ChildMove>> = BTreeMap::new();
        for transition in transitions {
            if let Some((parent, step)) = self.apply_alone(transition) {
                moves.entry(parent).or_default().push(step);
            }
        }

        // The counters follow only after the whole tree is cancelled. Otherwise a parent in it
        // could move to its finish step because its children have ended.
        for (parent, moves) in moves {
            self.count_children(parent, &moves, now);
        }
    }

    /// Cancels a task and its descendants. Returns the status of the task afterwards.
    pub(super) fn cancel(&mut self, id: TaskId, now: Timestamp) -> Status {
        if let Some(root) = cancel::decide(&self.tasks[&id], now) {
            self.cancel_tree(root, now);
        }
        self.tasks[&id].status
    }
}
