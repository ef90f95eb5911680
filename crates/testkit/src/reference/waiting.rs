//! Tasks that wait: who is rung for, where the lines begin, who has waited too long, and who is kept for a host.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use longhaul_domain::{
    StoreError, Task, TaskId, Timestamp, bounds,
    contract::{
        broker::Bell,
        store::{ClaimNamed, ClaimRequest, Failure, QueueHead},
    },
    lifecycle::{fail_waiting, rescue},
};

use super::{state::State, working::check_limit};

impl State {
    pub(super) fn list_due(
        &self,
        queue: &str,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<Bell>, StoreError> {
        bounds::check_label("queue", queue)?;
        check_limit(limit, bounds::DUE_BATCH)?;
        if self
            .queues
            .get(queue)
            .is_none_or(|paused_at| paused_at.is_some())
        {
            return Ok(Vec::new());
        }
        let waiting = self
            .claimable
            .iter()
            .filter(|(_, due_at, _)| *due_at <= now);
        let of_queue = waiting
            .map(|(_, _, id)| &self.tasks[id])
            .filter(|task| task.queue == queue);
        Ok(of_queue
            .take(limit)
            .map(|task| bell(task, self.standing(task)))
            .collect())
    }

    pub(super) fn list_heads(&self, now: Timestamp) -> Vec<QueueHead> {
        let mut heads: BTreeMap<(String, u8, String), Timestamp> = BTreeMap::new();
        for (Reverse(standing), due_at, id) in self
            .claimable
            .iter()
            .filter(|(_, due_at, _)| *due_at <= now)
        {
            let task = &self.tasks[id];
            let head = heads
                .entry((task.queue.clone(), *standing, task.task_type.clone()))
                .or_insert(*due_at);
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

    pub(super) fn bring_forward(
        &mut self,
        queue: &str,
        waited_ms: u64,
        most: usize,
        now: Timestamp,
    ) -> Result<usize, StoreError> {
        bounds::check_label("queue", queue)?;
        bounds::check_duration_ms("waited", waited_ms)?;
        check_limit(most, bounds::CLAIM_BATCH)?;
        if self
            .queues
            .get(queue)
            .is_none_or(|paused_at| paused_at.is_some())
        {
            return Ok(0);
        }
        let mut waiting: Vec<(Timestamp, TaskId)> = Vec::new();
        let mut looked_at: BTreeMap<(&str, u8), usize> = BTreeMap::new();
        for (_, _, id) in self
            .claimable
            .iter()
            .filter(|(_, due_at, _)| due_at.plus_ms(waited_ms) <= now)
        {
            let task = &self.tasks[id];
            if self.forward.contains(id) || task.queue != queue {
                continue;
            }
            let looks = looked_at
                .entry((&task.task_type, task.priority))
                .or_default();
            *looks += 1;
            let since = task.created_at.max(task.due_at);
            if *looks <= bounds::AGING_LOOK && since.plus_ms(waited_ms) <= now {
                waiting.push((since, *id));
            }
        }
        waiting.sort_unstable();
        let mut standing: BTreeMap<String, usize> = BTreeMap::new();
        for task in self
            .forward
            .iter()
            .map(|id| &self.tasks[id])
            .filter(|task| task.queue == queue)
        {
            *standing.entry(task.task_type.clone()).or_default() += 1;
        }
        let mut moved = 0;
        for (_, id) in waiting {
            let task = &self.tasks[&id];
            let of_type = standing.entry(task.task_type.clone()).or_default();
            if moved == most || *of_type >= most {
                continue;
            }
            *of_type += 1;
            moved += 1;
            self.claimable
                .remove(&(Reverse(task.priority), task.due_at, id));
            self.claimable
                .insert((Reverse(bounds::FORWARD), task.due_at, id));
            self.forward.insert(id);
        }
        Ok(moved)
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

    /// Notes that a rescued task is kept for the host that it ran on.
    pub(super) fn keep(&mut self, task: &Task) {
        if let Some(host) = task.host.clone().filter(|_| task.status.is_claimable()) {
            self.kept.insert(task.id, (host, task.due_at));
        }
    }

    pub(super) fn claim_kept(
        &mut self,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> Result<Vec<Task>, StoreError> {
        check_limit(request.limit, bounds::CLAIM_BATCH)?;
        bounds::check_name("host", &request.host)?;
        request
            .queues
            .iter()
            .try_for_each(|queue| bounds::check_label("queue", queue))?;
        request
            .task_types
            .iter()
            .try_for_each(|name| bounds::check_label("taskType", name))?;
        self.live_node(request.node_id)?;
        let is_kept =
            |task: &Task| self.kept.get(&task.id) == Some(&(request.host.clone(), task.due_at));
        let waiting = self
            .claimable
            .iter()
            .map(|(_, _, id)| &self.tasks[id])
            .filter(|task| is_kept(task));
        let served = waiting.filter(|task| {
            let is_served = request.queues.contains(&task.queue)
                && request.task_types.contains(&task.task_type);
            is_served && self.queues[&task.queue].is_none()
        });
        let ids: Vec<TaskId> = served.take(request.limit).map(|task| task.id).collect();
        for id in &ids {
            self.kept.remove(id);
            let transition = rescue::release(&self.tasks[id], now)?;
            self.apply(transition, now);
        }
        let (node_id, host, task_types) = (
            request.node_id,
            request.host.clone(),
            request.task_types.clone(),
        );
        self.claim_named(
            &ClaimNamed {
                node_id,
                host,
                task_types,
                ids,
            },
            now,
        )
    }
}

/// What is rung with for a task that stands at this priority.
fn bell(task: &Task, standing: u8) -> Bell {
    Bell {
        task_id: task.id,
        owner: task.owner.clone(),
        task_type: task.task_type.clone(),
        queue: task.queue.clone(),
        priority: standing.min(*bounds::PRIORITY.end()),
        retry_count: task.retry_count,
        submitted_at: task.created_at,
        due_at: task.due_at,
        looks: 0,
        correlation_id: task.correlation_id.clone(),
        trace_context: task.trace_context.clone(),
    }
}
