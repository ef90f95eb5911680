//! Commands of owners and administrators: cancel, retry, reschedule, one task or many, and pause
//! queues.

use longhaul_domain::{
    QueueName, Status, StoreError, TaskId, TaskRecord, Timestamp, bounds,
    contract::store::{Access, BulkChange, BulkOutcome, BulkRequest, Cancelled, RetryScope},
    lifecycle::{
        reschedule::{self, Reschedule},
        retry,
    },
};

use super::{
    attempts::check_limit,
    state::State,
    task_reads::{cursor, matches},
};

impl State {
    /// The task, if it is one that the caller may see.
    pub(super) fn accessible(
        &self,
        access: &Access,
        id: TaskId,
    ) -> Result<&TaskRecord, StoreError> {
        let task = self.tasks.get(&id);
        task.filter(|task| may_see(access, task))
            .ok_or(StoreError::NotFound)
    }

    pub(super) fn cancel_task(
        &mut self,
        access: &Access,
        id: TaskId,
        now: Timestamp,
    ) -> Result<Cancelled, StoreError> {
        self.accessible(access, id)?;
        Ok(Cancelled {
            status: self.cancel(id, now),
            moved: self.take_moved(),
        })
    }

    pub(super) fn retry_task(
        &mut self,
        access: &Access,
        id: TaskId,
        scope: RetryScope,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let task = self.accessible(access, id)?;
        match scope {
            RetryScope::Task => {
                let transition = retry::decide(task, now)?;
                self.apply(transition, now);
            }
            RetryScope::FailedChildren => {
                let transition = retry::decide_children(task, now)?;
                self.apply(transition, now);
                self.redo_failed_children(id, now)?;
            }
        }

        Ok(())
    }

    fn redo_failed_children(&mut self, parent: TaskId, now: Timestamp) -> Result<(), StoreError> {
        let mut moves = Vec::new();
        for child in self.children_of(parent) {
            let child = &self.tasks[&child];
            if retry::is_redone(child.status) {
                let transition = retry::decide(child, now)?;
                moves.extend(self.apply_alone(transition).map(|(_, step)| step));
            }
        }

        self.count_children(parent, &moves, now);
        Ok(())
    }

    pub(super) fn reschedule_task(
        &mut self,
        access: &Access,
        id: TaskId,
        change: &Reschedule,
        now: Timestamp,
    ) -> Result<TaskRecord, StoreError> {
        change.check()?;
        let transition = reschedule::decide(self.accessible(access, id)?, change, now)?;
        let after = transition.after.clone();
        self.apply(transition, now);

        Ok(after)
    }

    pub(super) fn change_tasks(
        &mut self,
        request: &BulkRequest,
        now: Timestamp,
    ) -> Result<BulkOutcome, StoreError> {
        check_limit(request.limit, bounds::MAINTENANCE_BATCH)?;
        request.filter.check()?;
        if let BulkChange::Reschedule(change) = &request.change {
            change.check()?;
        }

        let tasks = self.tasks.values();
        let later = tasks.filter(|task| request.after.is_none_or(|after| task.id > after));
        let visible = later.filter(|task| may_see(&request.access, task));
        let wanted = visible.filter(|task| matches(&request.filter, task));
        let chosen = wanted.take(request.limit);
        let matched: Vec<(TaskId, Status)> = chosen.map(|task| (task.id, task.status)).collect();

        let mut changed = 0;
        for (id, was) in &matched {
            let is_spared = request.change == BulkChange::Cancel
                && *was == Status::Running
                && request.spared.contains(&self.tasks[id].task_type);
            if !is_spared {
                changed += usize::from(self.change_one(*id, *was, &request.change, now));
            }
        }

        let next = cursor(&matched, request.limit, |(id, _)| *id);
        Ok(BulkOutcome {
            matched: matched.len(),
            changed,
            next,
        })
    }

    /// Whether the task was changed, directly or with a parent that was cancelled earlier in the
    /// batch.
    fn change_one(&mut self, id: TaskId, was: Status, change: &BulkChange, now: Timestamp) -> bool {
        let task = &self.tasks[&id];
        let decided = match change {
            BulkChange::Cancel => {
                return !was.is_ended() && self.cancel(id, now) == Status::Cancelled;
            }
            BulkChange::Retry => retry::decide(task, now).ok(),
            BulkChange::Reschedule(change) => reschedule::decide(task, change, now).ok(),
        };

        let Some(transition) = decided else {
            return false;
        };
        self.apply(transition, now);

        true
    }

    pub(super) fn set_paused(
        &mut self,
        name: &QueueName,
        paused_at: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        // A queue that is already paused keeps its earlier time.
        let since = self.queues.entry(name.clone()).or_default();
        *since = paused_at.map(|now| since.unwrap_or(now));

        Ok(())
    }
}

pub(super) fn may_see(access: &Access, task: &TaskRecord) -> bool {
    match access {
        Access::Owner(owner) => task.owner == *owner,
        Access::All => true,
    }
}
