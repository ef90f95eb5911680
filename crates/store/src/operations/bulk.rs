//! Bulk changes: one step over the tasks that match a filter.

use async_trait::async_trait;
use longhaul_domain::{
    Invalid, Status, TaskId, TaskRecord, Timestamp, bounds,
    contract::store::{BulkChange, BulkOutcome, BulkRequest},
    filter::{PageRequest, SortOrder},
    lifecycle::{Transition, reschedule, retry},
};

use super::{
    cancel::{cancel_trees, lock_trees},
    check_access, check_limit,
    read::list_page,
};
use crate::{
    effects::TransactionEffects,
    session::{Operation, Session},
    sql_error::SqlError,
};

/// Changes up to `limit` matching tasks in one transaction.
#[async_trait]
impl Operation for BulkRequest {
    type Output = BulkOutcome;

    fn check(&self) -> Result<(), Invalid> {
        self.filter.check()?;
        check_access(&self.access)?;
        check_limit(self.limit, bounds::MAINTENANCE_BATCH)?;

        match &self.change {
            BulkChange::Reschedule(change) => change.check(),
            BulkChange::Cancel | BulkChange::Retry => Ok(()),
        }
    }

    async fn run(&self, session: &mut dyn Session) -> Result<BulkOutcome, SqlError> {
        let page = PageRequest {
            order: SortOrder::OldestFirst,
            after: self.after,
            size: self.limit,
        };
        let matched = list_page(session, &self.access, &self.filter, &page).await?;
        let ids: Vec<TaskId> = matched.items.iter().map(|task| task.id).collect();
        let mut effects = TransactionEffects::default();

        // A cancel moves whole trees; the other changes move single tasks.
        if self.change == BulkChange::Cancel {
            lock_trees(session, &mut effects, &ids).await?;
        } else {
            effects.lock(session, ids.iter().copied()).await?;
        }

        // Another transaction may have moved a task out of the filter between the list and the
        // lock.
        let is_spared = |task: &TaskRecord| {
            self.change == BulkChange::Cancel
                && task.status == Status::Running
                && self.spared.contains(&task.task_type)
        };
        let is_wanted = |task: &TaskRecord| self.filter.matches(task) && !is_spared(task);
        let still = |id: &TaskId| effects.get(*id).is_some_and(is_wanted);
        let wanted: Vec<TaskId> = ids.iter().filter(|id| still(id)).copied().collect();

        let now = session.now().await?;
        let changed = change(session, &mut effects, &self.change, &wanted, now).await?;
        effects.save(session, now).await?;
        Ok(BulkOutcome {
            matched: ids.len(),
            changed,
            next: matched.next,
        })
    }
}

async fn change(
    session: &mut dyn Session,
    effects: &mut TransactionEffects,
    change: &BulkChange,
    ids: &[TaskId],
    now: Timestamp,
) -> Result<usize, SqlError> {
    if *change == BulkChange::Cancel {
        return cancel_trees(session, effects, ids, now).await;
    }

    let mut changed = 0;
    for id in ids {
        // A task whose state does not allow the change is skipped.
        if let Some(transition) = effects.get(*id).and_then(|task| decide(task, change, now)) {
            effects.record(session, transition);
            changed += 1;
        }
    }

    Ok(changed)
}

fn decide(task: &TaskRecord, change: &BulkChange, now: Timestamp) -> Option<Transition> {
    match change {
        BulkChange::Cancel => None,
        BulkChange::Retry => retry::decide(task, now).ok(),
        BulkChange::Reschedule(change) => reschedule::decide(task, change, now).ok(),
    }
}
