//! Waiting tasks: which to publish hints for, the head of each lane, promotion of those that wait
//! too long, and host affinity.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use async_trait::async_trait;
use longhaul_domain::{
    QueueName, StoreError, TaskId, TaskRecord, Timestamp, bounds,
    contract::{
        broker::Hint,
        store::{ClaimNamed, ClaimRequest, Failure, QueueCommands, QueueHead, Queues},
    },
    lifecycle::{fail_waiting, rescue},
    queue::Queue,
};

use super::{
    MemoryStore,
    attempts::{check_limit, check_types},
    state::State,
};

#[async_trait]
impl Queues for MemoryStore {
    async fn list_queues(&self) -> Result<Vec<Queue>, StoreError> {
        Ok(self.begin().0.list_queues())
    }

    async fn list_due(&self, queue: &QueueName, limit: usize) -> Result<Vec<Hint>, StoreError> {
        let (state, now) = self.begin();
        state.list_due(queue, limit, now)
    }

    async fn list_heads(&self) -> Result<Vec<QueueHead>, StoreError> {
        let (state, now) = self.begin();
        Ok(state.list_heads(now))
    }

    async fn next_due_at(
        &self,
        queues: &[QueueName],
        task_types: &[String],
    ) -> Result<Option<Timestamp>, StoreError> {
        self.node_call("next_due_at", |state, _| {
            state.next_due_at(queues, task_types)
        })
        .await
    }

    async fn count_ahead(
        &self,
        task: &TaskRecord,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize, StoreError> {
        self.begin().0.count_ahead(task, now, limit)
    }
}

#[async_trait]
impl QueueCommands for MemoryStore {
    async fn pause_queue(&self, name: &QueueName) -> Result<(), StoreError> {
        let (mut state, now) = self.begin();
        state.set_paused(name, Some(now))
    }

    async fn resume_queue(&self, name: &QueueName) -> Result<(), StoreError> {
        self.begin().0.set_paused(name, None)
    }

    async fn promote_tasks(
        &self,
        queue: &QueueName,
        waited_ms: u64,
        most: usize,
    ) -> Result<usize, StoreError> {
        let (mut state, now) = self.begin();
        state.promote_tasks(queue, waited_ms, most, now)
    }
}

impl State {
    pub(super) fn list_due(
        &self,
        queue: &QueueName,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<Hint>, StoreError> {
        check_limit(limit, bounds::DUE_BATCH)?;
        if !self.is_open(queue) {
            return Ok(Vec::new());
        }

        let claimable = self.claimable.iter();
        let due = claimable.filter(|(_, due_at, _)| *due_at <= now);
        let tasks = due.map(|(_, _, id)| &self.tasks[id]);
        let of_queue = tasks.filter(|task| task.queue == *queue).take(limit);
        let hint = |task| hint(task, self.claim_priority(task));

        Ok(of_queue.map(hint).collect())
    }

    /// Whether the queue exists and is not paused.
    fn is_open(&self, queue: &QueueName) -> bool {
        matches!(self.queues.get(queue), Some(None))
    }

    pub(super) fn list_heads(&self, now: Timestamp) -> Vec<QueueHead> {
        let mut heads: BTreeMap<(QueueName, u8, String), Timestamp> = BTreeMap::new();
        for (Reverse(priority), due_at, id) in &self.claimable {
            if *due_at > now {
                continue;
            }

            let task = &self.tasks[id];
            let lane = (task.queue.clone(), *priority, task.task_type.clone());
            let head = heads.entry(lane).or_insert(*due_at);
            *head = *due_at.min(head);
        }

        let head = |((queue, priority, task_type), due_at)| QueueHead {
            queue,
            priority,
            task_type,
            due_at,
        };

        heads.into_iter().map(head).collect()
    }

    pub(super) fn promote_tasks(
        &mut self,
        queue: &QueueName,
        waited_ms: u64,
        most: usize,
        now: Timestamp,
    ) -> Result<usize, StoreError> {
        bounds::check_duration_ms("waited", waited_ms)?;
        check_limit(most, bounds::CLAIM_BATCH)?;
        if !self.is_open(queue) {
            return Ok(0);
        }

        let mut promoted = self.promoted_by_type(queue);
        let mut moved = 0;
        for (_, id) in self.overdue(queue, waited_ms, now) {
            let task = &self.tasks[&id];
            let of_type = promoted.entry(task.task_type.clone()).or_default();
            if moved == most || *of_type >= most {
                continue;
            }
            *of_type += 1;
            moved += 1;

            self.claimable
                .remove(&(Reverse(task.priority), task.due_at, id));
            self.claimable
                .insert((Reverse(bounds::FORWARD), task.due_at, id));
            self.promoted.insert(id);
        }

        Ok(moved)
    }

    /// Tasks at the head of their lanes that have waited too long, longest first.
    fn overdue(
        &self,
        queue: &QueueName,
        waited_ms: u64,
        now: Timestamp,
    ) -> Vec<(Timestamp, TaskId)> {
        let mut overdue = Vec::new();
        let mut inspected: BTreeMap<(&str, u8), usize> = BTreeMap::new();
        for (_, due_at, id) in &self.claimable {
            let task = &self.tasks[id];
            let is_late = due_at.plus_ms(waited_ms) <= now;
            if !is_late || self.promoted.contains(id) || task.queue != *queue {
                continue;
            }

            let lane = (task.task_type.as_str(), task.priority);
            let of_lane = inspected.entry(lane).or_default();
            *of_lane += 1;

            let since = task.created_at.max(task.due_at);
            if *of_lane <= bounds::AGING_WINDOW && since.plus_ms(waited_ms) <= now {
                overdue.push((since, *id));
            }
        }

        overdue.sort_unstable();
        overdue
    }

    /// How many tasks of each type are promoted in a queue.
    fn promoted_by_type(&self, queue: &QueueName) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for id in &self.promoted {
            let task = &self.tasks[id];
            if task.queue == *queue {
                *counts.entry(task.task_type.clone()).or_default() += 1;
            }
        }

        counts
    }

    pub(super) fn fail_waiting(
        &mut self,
        ids: &[TaskId],
        failure: &Failure,
        now: Timestamp,
    ) -> Result<Vec<TaskId>, StoreError> {
        bounds::check_batch("ids", ids.len(), bounds::MAINTENANCE_BATCH)?;

        let mut failed = Vec::new();
        for id in BTreeSet::from_iter(ids) {
            let Some(task) = self.tasks.get(id) else {
                continue;
            };
            if let Ok(transition) = fail_waiting::decide(task, failure.at(now, task.attempt), now) {
                self.apply(transition, now);
                failed.push(*id);
            }
        }

        Ok(failed)
    }

    /// Reserves a rescued task for the host that it ran on.
    pub(super) fn note_host_affinity(&mut self, task: &TaskRecord) {
        if let Some(host) = task.host.clone()
            && task.status.is_claimable()
        {
            self.host_affinity.insert(task.id, (host, task.due_at));
        }
    }

    pub(super) fn claim_host_affinity(
        &mut self,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> Result<Vec<TaskRecord>, StoreError> {
        check_limit(request.limit, bounds::CLAIM_BATCH)?;
        bounds::check_name("host", &request.host)?;
        check_types(&request.task_types)?;
        self.live_node(request.node_id)?;

        let is_reserved = |task: &TaskRecord| {
            self.host_affinity.get(&task.id) == Some(&(request.host.clone(), task.due_at))
        };
        let waiting = self.claimable.iter().map(|(_, _, id)| &self.tasks[id]);
        let reserved = waiting.filter(|task| is_reserved(task));
        let served = reserved.filter(|task| self.is_served(request, task));
        let ids: Vec<TaskId> = served.take(request.limit).map(|task| task.id).collect();

        for id in &ids {
            self.host_affinity.remove(id);
            let transition = rescue::release(&self.tasks[id], now)?;
            self.apply(transition, now);
        }

        let named = ClaimNamed {
            node_id: request.node_id,
            host: request.host.clone(),
            task_types: request.task_types.clone(),
            ids,
        };
        self.claim_named(&named, now)
    }
}

/// The hint for a task that is claimed by this priority.
fn hint(task: &TaskRecord, claim_priority: u8) -> Hint {
    Hint {
        priority: claim_priority.min(*bounds::PRIORITY.end()),
        ..Hint::of(task)
    }
}
