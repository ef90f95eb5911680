//! What duties do: rescue, expire, prune, relay and fold, each in bounded passes.

use longhaul_domain::{
    NodeId, Status, StoreError, Task, TaskId, Timestamp, bounds,
    contract::store::{Expired, RescueRequest, Rescued},
    event::LeasedMessage,
    filter::{Page, Retention},
    lifecycle::{
        expire::{self, Overdue},
        prune, rescue,
    },
    node::DutyLease,
};
use rand::RngExt;

use super::{state::State, working::check_limit};

impl State {
    pub(super) fn take_duty(
        &mut self,
        duty: &str,
        node: NodeId,
        ttl_ms: u64,
        now: Timestamp,
    ) -> Result<Option<DutyLease>, StoreError> {
        bounds::check_label("duty", duty)?;
        bounds::check_duration_ms("ttl", ttl_ms)?;
        let granted = DutyLease::grant(self.duties.get(duty), duty, node, ttl_ms, now);
        if let Some(lease) = &granted {
            self.duties.insert(duty.to_owned(), lease.clone());
        }
        Ok(granted)
    }

    pub(super) fn declare_others_dead(&mut self, survivor: NodeId, now: Timestamp) {
        for node in self.nodes.values_mut().filter(|node| node.id != survivor) {
            node.lost_at.get_or_insert(now);
        }
        for duty in self
            .duties
            .values_mut()
            .filter(|duty| duty.node_id != survivor)
        {
            duty.leased_until = Timestamp::from_micros(0);
        }
    }

    pub(super) fn rescue(
        &mut self,
        request: &RescueRequest,
        now: Timestamp,
    ) -> Result<Rescued, StoreError> {
        check_limit(request.limit, bounds::MAINTENANCE_BATCH)?;
        bounds::check_duration_ms("lease", request.lease_ms)?;
        bounds::check_duration_ms("keepForHost", request.keep_for_host_ms)?;
        self.kept.retain(|_, (_, until)| *until > now);
        let others = self
            .nodes
            .values_mut()
            .filter(|node| Some(node.id) != request.asker);
        for node in others.filter(|node| node.heartbeat_at.plus_ms(request.lease_ms) <= now) {
            node.lost_at.get_or_insert(now);
        }
        let lives = |id: NodeId| {
            self.nodes
                .get(&id)
                .is_some_and(|node| node.lost_at.is_none())
        };
        let running = self
            .tasks
            .values()
            .filter(|task| task.status == Status::Running);
        let orphans = running.filter_map(|task| {
            task.node_id
                .filter(|id| !lives(*id))
                .map(|dead| (task.id, dead))
        });
        let orphans: Vec<(TaskId, NodeId)> = orphans.take(request.limit).collect();
        let mut rescued = Rescued::default();
        for (id, dead) in orphans {
            let mut transition =
                rescue::decide(&self.tasks[&id], Some(dead), request.max_crashes, now)?;
            if request.keep_for_host_ms > 0 {
                transition = rescue::keep_for_host(transition, request.keep_for_host_ms, now);
                self.keep(&transition.after);
            }
            let quarantined = transition.after.status == Status::DeadLetter;
            if quarantined {
                &mut rescued.quarantined
            } else {
                &mut rescued.requeued
            }
            .push(id);
            self.apply(transition, now);
        }
        Ok(rescued)
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
        let mut late: Vec<(Timestamp, TaskId)> =
            dated.filter(|(deadline, _)| *deadline <= now).collect();
        late.sort_unstable();
        late.truncate(limit);
        let mut moved = 0;
        for (_, id) in late {
            // The end of a child before it may have ended this one as its parent.
            if let Ok(transition) = expire::decide_deadline(&self.tasks[&id], now) {
                self.apply(transition, now);
                moved += 1;
            }
        }
        moved
    }

    fn expire_hung_attempts(&mut self, overdue: &Overdue, limit: usize, now: Timestamp) -> usize {
        let hung = self
            .tasks
            .values()
            .filter(|task| overdue.holds_for(task, now))
            .map(|task| task.id);
        let hung: Vec<TaskId> = hung.take(limit).collect();
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

    fn is_prunable(&self, task: &Task, keep: &Retention, now: Timestamp) -> bool {
        let open = |id: &TaskId| !self.tasks[id].status.is_ended();
        prune::decide(task, keep, now).is_ok() && !self.descendants_of(task.id).iter().any(open)
    }

    pub(super) fn list_prunable(
        &self,
        keep: &Retention,
        after: Option<TaskId>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page<Task>, StoreError> {
        check_limit(limit, bounds::MAINTENANCE_BATCH)?;
        let later = self
            .tasks
            .values()
            .filter(|task| after.is_none_or(|after| task.id > after));
        let items: Vec<Task> = later
            .filter(|task| self.is_prunable(task, keep, now))
            .take(limit)
            .cloned()
            .collect();
        let next = items
            .last()
            .map(|task| task.id)
            .filter(|_| items.len() == limit);
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
            if self
                .tasks
                .get(id)
                .is_some_and(|task| self.is_prunable(task, keep, now))
            {
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
        let expired = self
            .promises
            .iter()
            .filter(|(_, promise)| promise.expires_at <= now);
        let names: Vec<(String, String)> =
            expired.map(|(name, _)| name.clone()).take(limit).collect();
        names.iter().for_each(|name| {
            self.promises.remove(name);
        });
        Ok(names.len())
    }

    pub(super) fn lease_outbox(
        &mut self,
        limit: usize,
        ttl_ms: u64,
        now: Timestamp,
    ) -> Result<Vec<LeasedMessage>, StoreError> {
        check_limit(limit, bounds::MAINTENANCE_BATCH)?;
        bounds::check_duration_ms("ttl", ttl_ms)?;
        let free = self
            .outbox
            .iter_mut()
            .filter(|(_, row)| row.leased_until.is_none_or(|until| until <= now));
        let lease = free.take(limit).map(|(id, row)| {
            row.tries += 1;
            row.leased_until = Some(now.plus_ms(ttl_ms));
            LeasedMessage {
                id: *id,
                tries: row.tries,
                message: row.message.clone(),
            }
        });
        Ok(lease.collect())
    }

    pub(super) fn fold_tallies(&mut self, limit: usize) -> Result<usize, StoreError> {
        check_limit(limit, bounds::MAINTENANCE_BATCH)?;
        let lines = limit.min(self.unfolded.len());
        let folded: Vec<_> = self.unfolded.drain(..lines).collect();
        self.folded.add_all(&folded);
        Ok(lines)
    }
}
