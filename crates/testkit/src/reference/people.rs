//! What people do: cancel, retry, reschedule, alone or in bulk, and pause queues.

use longhaul_domain::{
    Status, StoreError, Task, TaskId, Timestamp, bounds,
    contract::store::{Access, BulkChange, BulkOutcome, BulkRequest, Cancelled, RetryScope},
    lifecycle::{
        reschedule::{self, Reschedule},
        retry,
    },
};

use super::{reading::matches, state::State, working::check_limit};

impl State {
    /// The task, if it is one that the caller may see.
    pub(super) fn accessible(&self, access: &Access, id: TaskId) -> Result<&Task, StoreError> {
        self.tasks
            .get(&id)
            .filter(|task| may_see(access, task))
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
    ) -> Result<Task, StoreError> {
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
        let after = self
            .tasks
            .values()
            .filter(|task| request.after.is_none_or(|after| task.id > after));
        let wanted =
            after.filter(|task| may_see(&request.access, task) && matches(&request.filter, task));
        let matched: Vec<(TaskId, Status)> = wanted
            .take(request.limit)
            .map(|task| (task.id, task.status))
            .collect();
        let mut changed = 0;
        for (id, was) in &matched {
            let is_spared =
                *was == Status::Running && request.spared.contains(&self.tasks[id].task_type);
            if !(is_spared && request.change == BulkChange::Cancel) {
                changed += usize::from(self.change_one(*id, *was, &request.change, now));
            }
        }
        let next = matched
            .last()
            .map(|(id, _)| *id)
            .filter(|_| matched.len() == request.limit);
        Ok(BulkOutcome {
            matched: matched.len(),
            changed,
            next,
        })
    }

    /// Whether the task was changed, by its own turn or as a part of a tree that was cancelled before it.
    fn change_one(&mut self, id: TaskId, was: Status, change: &BulkChange, now: Timestamp) -> bool {
        let task = &self.tasks[&id];
        let decided = match change {
            BulkChange::Cancel => {
                return !was.is_ended() && self.cancel(id, now) == Status::Cancelled;
            }
            BulkChange::Retry => retry::decide(task, now).ok(),
            BulkChange::Reschedule(change) => reschedule::decide(task, change, now).ok(),
        };
        let allowed = decided.is_some();
        decided
            .into_iter()
            .for_each(|transition| self.apply(transition, now));
        allowed
    }

    pub(super) fn set_paused(
        &mut self,
        name: &str,
        paused_at: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        bounds::check_label("queue", name)?;
        let since = self.queues.entry(name.to_owned()).or_default();
        // A queue that is paused already keeps the time since when.
        *since = paused_at.map(|now| since.unwrap_or(now));
        Ok(())
    }
}

pub(super) fn may_see(access: &Access, task: &Task) -> bool {
    match access {
        Access::Owner(owner) => task.owner == *owner,
        Access::All => true,
    }
}
