//! The tables of the reference store, and how a decided change is written to them.
//!
//! Everything that goes with a change is written here in one place: the row, the history, the tallies, the
//! messages and the parents' counters. No decision is taken here; all come from the domain's lifecycle.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use longhaul_domain::{
    AccessToken, Attempt, LogEntry, Node, NodeId, Status, Task, TaskId, TaskIdSequence, Timestamp,
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
    node::DutyLease,
    statistics::{Tally, TallySheet},
};
use rand::{RngExt, rngs::StdRng};

/// A promise that a key leads to a task.
#[derive(Debug, Clone, Copy)]
pub(super) struct Promise {
    pub(super) task_id: TaskId,
    pub(super) digest: [u8; 32],
    pub(super) expires_at: Timestamp,
}

/// A message of the outbox and who holds it until when.
#[derive(Debug)]
pub(super) struct OutboxRow {
    pub(super) message: OutboxMessage,
    pub(super) tries: u32,
    pub(super) leased_until: Option<Timestamp>,
}

/// All that the store knows.
#[derive(Debug)]
pub(super) struct State {
    outbox_policy: OutboxPolicy,
    pub(super) random: StdRng,
    pub(super) ids: TaskIdSequence,
    pub(super) tasks: BTreeMap<TaskId, Task>,
    /// The claimable tasks in the order of claims.
    pub(super) claimable: BTreeSet<(Reverse<u8>, Timestamp, TaskId)>,
    /// Those of them that were brought forward.
    pub(super) forward: BTreeSet<TaskId>,
    /// Tasks that are kept for a host until a moment, which is their due time.
    pub(super) kept: BTreeMap<TaskId, (String, Timestamp)>,
    pub(super) children: BTreeMap<TaskId, BTreeSet<TaskId>>,
    /// Tasks that this operation has changed, and their status before it.
    pub(super) moved: BTreeMap<TaskId, Status>,
    pub(super) attempts: BTreeMap<(TaskId, u32), Attempt>,
    pub(super) logs: BTreeMap<TaskId, Vec<LogEntry>>,
    pub(super) last_log_number: u64,
    /// Files, and when each is to be swept.
    pub(super) artifacts: BTreeMap<ArtifactId, (ArtifactRecord, Option<Timestamp>)>,
    /// Every queue that is known, and since when it is paused.
    pub(super) queues: BTreeMap<String, Option<Timestamp>>,
    pub(super) nodes: BTreeMap<NodeId, Node>,
    pub(super) promises: BTreeMap<(String, String), Promise>,
    pub(super) duties: BTreeMap<String, DutyLease>,
    pub(super) tokens: BTreeMap<String, (AccessToken, TokenDigest)>,
    pub(super) outbox: BTreeMap<i64, OutboxRow>,
    last_message_id: i64,
    pub(super) unfolded: Vec<Tally>,
    pub(super) folded: TallySheet,
}

impl State {
    pub(super) fn new(outbox_policy: OutboxPolicy, random: StdRng) -> Self {
        Self {
            outbox_policy,
            random,
            ids: TaskIdSequence::default(),
            tasks: BTreeMap::new(),
            claimable: BTreeSet::new(),
            forward: BTreeSet::new(),
            kept: BTreeMap::new(),
            children: BTreeMap::new(),
            moved: BTreeMap::new(),
            attempts: BTreeMap::new(),
            logs: BTreeMap::new(),
            last_log_number: 0,
            artifacts: BTreeMap::new(),
            queues: BTreeMap::new(),
            nodes: BTreeMap::new(),
            promises: BTreeMap::new(),
            duties: BTreeMap::new(),
            tokens: BTreeMap::new(),
            outbox: BTreeMap::new(),
            last_message_id: 0,
            unfolded: Vec::new(),
            folded: TallySheet::default(),
        }
    }

    pub(super) fn next_id(&mut self, now: Timestamp) -> TaskId {
        let gap = self.random.random();
        self.ids.next_id(now, gap)
    }

    /// Writes a decided change with all that goes with it, up to the last ancestor that it moves.
    pub(super) fn apply(&mut self, transition: Transition, now: Timestamp) {
        if let Some((parent, step)) = self.apply_alone(transition) {
            self.count_children(parent, &[step], now);
        }
    }

    /// Lets a parent's counters follow its children.
    pub(super) fn count_children(&mut self, parent: TaskId, moves: &[ChildMove], now: Timestamp) {
        let parent = &self.tasks[&parent];
        let transition =
            child_ended::decide(parent, moves, now).expect("a move of old children adds none");
        self.apply(transition, now);
    }

    /// Writes a decided change, and answers with what the parent has yet to be told.
    pub(super) fn apply_alone(&mut self, transition: Transition) -> Option<(TaskId, ChildMove)> {
        let Transition {
            after,
            archived,
            event,
        } = transition;
        if let Some(attempt) = archived {
            // The first entry tells how the attempt really ended; what comes later only repeats it.
            self.attempts
                .entry((attempt.task_id, attempt.attempt))
                .or_insert(attempt);
        }
        if let Some(event) = event {
            self.outbox_policy
                .messages(&after, event)
                .into_iter()
                .for_each(|message| self.post(message));
        }
        let before = self.write(&after);
        let mut sheet = TallySheet::default();
        match &before {
            Some(before) => sheet.record_move(before, &after),
            None => sheet.count(&after.queue, &after.task_type, after.status, 1),
        }
        self.unfolded.extend(sheet.into_tallies());
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

    /// Replaces the row and what is found by it. Answers with the row as it was.
    fn write(&mut self, after: &Task) -> Option<Task> {
        let before = self.tasks.insert(after.id, after.clone());
        if let Some(before) = &before {
            self.moved.entry(after.id).or_insert(before.status);
            self.claimable
                .remove(&(Reverse(self.standing(before)), before.due_at, before.id));
            self.forward.remove(&before.id);
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

    /// The priority that a waiting task is claimed by: its own, unless it was brought forward.
    pub(super) fn standing(&self, task: &Task) -> u8 {
        if self.forward.contains(&task.id) {
            bounds::FORWARD
        } else {
            task.priority
        }
    }

    /// What this operation has moved since it was last asked.
    pub(super) fn take_moved(&mut self) -> Vec<Moved> {
        let changed = std::mem::take(&mut self.moved)
            .into_iter()
            .map(|(id, was)| (was, &self.tasks[&id]));
        changed
            .filter(|(was, task)| *was != task.status)
            .map(|(was, task)| Moved {
                was,
                task: task.clone(),
            })
            .collect()
    }

    /// Removes a row with its history and its log, and counts it out.
    pub(super) fn remove(&mut self, id: TaskId, now: Timestamp) {
        let task = self.tasks.remove(&id).expect("the caller has just read it");
        self.children.remove(&id);
        self.attempts.retain(|(task_id, _), _| *task_id != id);
        self.logs.remove(&id);
        self.expire_artifacts(id, now);
        let mut sheet = TallySheet::default();
        sheet.count(&task.queue, &task.task_type, task.status, -1);
        self.unfolded.extend(sheet.into_tallies());
    }

    pub(super) fn children_of(&self, id: TaskId) -> Vec<TaskId> {
        self.children
            .get(&id)
            .into_iter()
            .flatten()
            .copied()
            .collect()
    }

    /// All below a task, each level before the next one.
    pub(super) fn descendants_of(&self, id: TaskId) -> Vec<TaskId> {
        let mut found = self.children_of(id);
        let mut next = 0;
        while let Some(id) = found.get(next) {
            found.extend(self.children_of(*id));
            next += 1;
        }
        found
    }

    /// Writes the decided cancel of a task, and cancels all that is open below it, the deepest first.
    pub(super) fn cancel_tree(&mut self, root: Transition, now: Timestamp) {
        let mut moves: BTreeMap<TaskId, Vec<ChildMove>> = BTreeMap::new();
        let below = self.descendants_of(root.after.id);
        let cancelled = below
            .into_iter()
            .rev()
            .filter_map(|id| cancel::decide(&self.tasks[&id], now));
        let transitions: Vec<Transition> = cancelled.chain([root]).collect();
        for transition in transitions {
            if let Some((parent, step)) = self.apply_alone(transition) {
                moves.entry(parent).or_default().push(step);
            }
        }
        // Only now, when the whole tree is cancelled: no parent in it may go on because its children ended.
        for (parent, moves) in moves {
            self.count_children(parent, &moves, now);
        }
    }

    /// Cancels a task and all below it. Answers with the status that it has then.
    pub(super) fn cancel(&mut self, id: TaskId, now: Timestamp) -> Status {
        if let Some(root) = cancel::decide(&self.tasks[&id], now) {
            self.cancel_tree(root, now);
        }
        self.tasks[&id].status
    }
}
