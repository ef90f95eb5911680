//! The maintenance jobs: rescue, expire, prune, relay, compact counts. Every pass is bounded.

use async_trait::async_trait;
use longhaul_domain::{
    NodeId, Status, StoreError, TaskId, TaskRecord, Timestamp,
    artifact::{ArtifactRecord, Swept},
    bounds,
    contract::store::{Expired, Maintenance, RescueRequest, Rescued},
    filter::{Page, Retention},
    lifecycle::{
        expire::{self, Overdue},
        prune, rescue,
    },
    node::MaintenanceLease,
};
use rand::RngExt;

use super::{MemoryStore, attempts::check_limit, state::State, task_reads::cursor};

#[async_trait]
impl Maintenance for MemoryStore {
    async fn take_maintenance_lease(
        &self,
        job: &str,
        node: NodeId,
        ttl_ms: u64,
    ) -> Result<Option<MaintenanceLease>, StoreError> {
        self.node_call("take_maintenance_lease", |state, now| {
            state.take_maintenance_lease(job, node, ttl_ms, now)
        })
        .await
    }

    async fn list_prunable(
        &self,
        keep: &Retention,
        after: Option<TaskId>,
        limit: usize,
    ) -> Result<Page<TaskRecord>, StoreError> {
        let (state, now) = self.begin();
        state.list_prunable(keep, after, limit, now)
    }

    async fn prune_tasks(&self, keep: &Retention, ids: &[TaskId]) -> Result<usize, StoreError> {
        let (mut state, now) = self.begin();
        state.prune(keep, ids, now)
    }

    async fn prune_idempotency_keys(&self, limit: usize) -> Result<usize, StoreError> {
        let (mut state, now) = self.begin();
        state.prune_idempotency_keys(limit, now)
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

    async fn compact_counts(&self, limit: usize) -> Result<usize, StoreError> {
        self.begin().0.compact_counts(limit)
    }
}

impl State {
    pub(super) fn take_maintenance_lease(
        &mut self,
        job: &str,
        node: NodeId,
        ttl_ms: u64,
        now: Timestamp,
    ) -> Result<Option<MaintenanceLease>, StoreError> {
        bounds::check_label("job", job)?;
        bounds::check_duration_ms("ttl", ttl_ms)?;
        let granted = MaintenanceLease::grant(self.maintenance.get(job), job, node, ttl_ms, now);
        if let Some(lease) = &granted {
            self.maintenance.insert(job.to_owned(), lease.clone());
        }

        Ok(granted)
    }

    pub(super) fn rescue(
        &mut self,
        request: &RescueRequest,
        now: Timestamp,
    ) -> Result<Rescued, StoreError> {
        check_limit(request.limit, bounds::MAINTENANCE_BATCH)?;
        bounds::check_duration_ms("lease", request.lease_ms)?;
        bounds::check_duration_ms("keepForHost", request.host_affinity_ms)?;

        self.host_affinity.retain(|_, (_, until)| *until > now);
        self.declare_silent_dead(request, now);

        let mut rescued = Rescued::default();
        for (id, dead) in self.orphans(request.limit) {
            let mut transition =
                rescue::decide(&self.tasks[&id], Some(dead), request.max_crashes, now)?;
            if request.host_affinity_ms > 0 {
                transition = rescue::host_affinity(transition, request.host_affinity_ms, now);
                self.note_host_affinity(&transition.after);
            }

            if transition.after.status == Status::DeadLetter {
                rescued.quarantined.push(id);
            } else {
                rescued.requeued.push(id);
            }
            self.apply(transition, now);
        }

        Ok(rescued)
    }

    fn declare_silent_dead(&mut self, request: &RescueRequest, now: Timestamp) {
        for node in self.nodes.values_mut() {
            let is_silent = node.heartbeat_at.plus_ms(request.lease_ms) <= now;
            if is_silent && Some(node.id) != request.asker {
                node.lost_at.get_or_insert(now);
            }
        }
    }

    /// Running tasks whose node is dead or gone, with that node.
    fn orphans(&self, limit: usize) -> Vec<(TaskId, NodeId)> {
        let is_alive = |id: NodeId| {
            let node = self.nodes.get(&id);
            node.is_some_and(|node| node.lost_at.is_none())
        };

        let tasks = self.tasks.values();
        let running = tasks.filter(|task| task.status == Status::Running);
        let orphans = running.filter_map(|task| {
            let node = task.node_id?;
            (!is_alive(node)).then_some((task.id, node))
        });

        orphans.take(limit).collect()
    }

    pub(super) fn expire(
        &mut self,
        overdue: &Overdue,
        limit: usize,
        now: Timestamp,
    ) -> Result<Expired, StoreError> {
        check_limit(limit, bounds::MAINTENANCE_BATCH)?;
        bounds::check_duration_ms("silent", overdue.silent_ms)?;
        bounds::check_duration_ms("timeoutGrace", overdue.timeout_grace_ms)?;

        let mut expired = Expired {
            ended: self.expire_deadlines(limit, now),
            moved: self.take_moved(),
        };

        expired.ended += self.expire_hung_attempts(overdue, limit, now);
        expired.moved.extend(self.take_moved());
        Ok(expired)
    }

    fn expire_deadlines(&mut self, limit: usize, now: Timestamp) -> usize {
        let open = self.tasks.values().filter(|task| !task.status.is_ended());
        let dated = open.filter_map(|task| task.deadline_at.map(|deadline| (deadline, task.id)));
        let late = dated.filter(|(deadline, _)| *deadline <= now);
        let mut late: Vec<(Timestamp, TaskId)> = late.collect();
        late.sort_unstable();
        late.truncate(limit);

        let mut moved = 0;
        for (_, id) in late {
            // The end of an earlier child may already have ended this parent.
            if let Ok(transition) = expire::decide_deadline(&self.tasks[&id], now) {
                self.apply(transition, now);
                moved += 1;
            }
        }

        moved
    }

    fn expire_hung_attempts(&mut self, overdue: &Overdue, limit: usize, now: Timestamp) -> usize {
        let tasks = self.tasks.values();
        let hung = tasks.filter(|task| overdue.holds_for(task, now));
        let hung: Vec<TaskId> = hung.map(|task| task.id).take(limit).collect();

        let mut moved = 0;
        for id in hung {
            let random = self.random.random();
            if let Ok(transition) = expire::decide_overdue(&self.tasks[&id], overdue, random, now) {
                self.apply(transition, now);
                moved += 1;
            }
        }

        moved
    }

    fn is_prunable(&self, task: &TaskRecord, keep: &Retention, now: Timestamp) -> bool {
        let open = |id: &TaskId| !self.tasks[id].status.is_ended();
        prune::decide(task, keep, now).is_ok() && !self.descendants_of(task.id).iter().any(open)
    }

    pub(super) fn list_prunable(
        &self,
        keep: &Retention,
        after: Option<TaskId>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page<TaskRecord>, StoreError> {
        check_limit(limit, bounds::MAINTENANCE_BATCH)?;

        let tasks = self.tasks.values();
        let later = tasks.filter(|task| after.is_none_or(|after| task.id > after));
        let prunable = later.filter(|task| self.is_prunable(task, keep, now));
        let items: Vec<TaskRecord> = prunable.take(limit).cloned().collect();

        let next = cursor(&items, limit, |task| task.id);
        Ok(Page { items, next })
    }

    pub(super) fn prune(
        &mut self,
        keep: &Retention,
        ids: &[TaskId],
        now: Timestamp,
    ) -> Result<usize, StoreError> {
        bounds::check_batch("ids", ids.len(), bounds::MAINTENANCE_BATCH)?;

        let mut removed = 0;
        for id in ids {
            let task = self.tasks.get(id);
            if task.is_some_and(|task| self.is_prunable(task, keep, now)) {
                let all: Vec<TaskId> = self.descendants_of(*id).into_iter().chain([*id]).collect();
                removed += all.len();
                all.into_iter().for_each(|id| self.remove(id, now));
            }
        }

        Ok(removed)
    }

    pub(super) fn prune_idempotency_keys(
        &mut self,
        limit: usize,
        now: Timestamp,
    ) -> Result<usize, StoreError> {
        check_limit(limit, bounds::MAINTENANCE_BATCH)?;

        let keys = self.idempotency_keys.iter();
        let expired = keys.filter(|(_, row)| row.expires_at <= now);
        let names = expired.map(|(name, _)| name.clone());
        let names: Vec<(String, String)> = names.take(limit).collect();

        for name in &names {
            self.idempotency_keys.remove(name);
        }

        Ok(names.len())
    }

    pub(super) fn compact_counts(&mut self, limit: usize) -> Result<usize, StoreError> {
        check_limit(limit, bounds::MAINTENANCE_BATCH)?;

        let rows = limit.min(self.count_deltas.len());
        let deltas: Vec<_> = self.count_deltas.drain(..rows).collect();
        self.counts.add_all(&deltas);

        Ok(rows)
    }
}
