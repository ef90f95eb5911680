//! Bulk changes: one step over the tasks that match a filter.

use async_trait::async_trait;
use longhaul_domain::{
    Status, Task, TaskId, Timestamp,
    contract::store::{BulkChange, BulkOutcome, BulkRequest},
    filter::{PageRequest, SortOrder},
    lifecycle::{Transition, reschedule, retry},
};

use super::{
    cancel::{cancel_trees, lock_trees},
    read::list_page,
};
use crate::{
    failure::Failure,
    ledger::Ledger,
    session::{Operation, Session},
};

/// Changes up to `limit` matching tasks in one transaction.
#[derive(Debug)]
pub(crate) struct ChangeTasks {
    pub(crate) request: BulkRequest,
}

#[async_trait]
impl Operation for ChangeTasks {
    type Output = BulkOutcome;

    async fn run(&self, session: &mut dyn Session) -> Result<BulkOutcome, Failure> {
        let request = &self.request;
        let page = PageRequest {
            order: SortOrder::OldestFirst,
            after: request.after,
            size: request.limit,
        };
        let matched = list_page(session, &request.access, &request.filter, &page).await?;
        let ids: Vec<TaskId> = matched.items.iter().map(|task| task.id).collect();
        let mut ledger = Ledger::default();
        if request.change == BulkChange::Cancel {
            lock_trees(session, &mut ledger, &ids).await?;
        } else {
            ledger.lock(session, ids.iter().copied()).await?;
        }
        // Whoever was faster may have moved a task out of the filter between the list and the lock.
        let is_spared = |task: &Task| {
            request.change == BulkChange::Cancel
                && task.status == Status::Running
                && request.spared.contains(&task.task_type)
        };
        let is_wanted = |task: &Task| request.filter.matches(task) && !is_spared(task);
        let still = |id: &TaskId| ledger.get(*id).is_some_and(is_wanted);
        let wanted: Vec<TaskId> = ids.iter().filter(|id| still(id)).copied().collect();
        let now = session.now().await?;
        let changed = change(session, &mut ledger, &request.change, &wanted, now).await?;
        ledger.save(session, now).await?;
        Ok(BulkOutcome {
            matched: ids.len(),
            changed,
            next: matched.next,
        })
    }
}

async fn change(
    session: &mut dyn Session,
    ledger: &mut Ledger,
    change: &BulkChange,
    ids: &[TaskId],
    now: Timestamp,
) -> Result<usize, Failure> {
    if *change == BulkChange::Cancel {
        return cancel_trees(session, ledger, ids, now).await;
    }
    let mut changed = 0;
    for id in ids {
        // What a task's state does not allow is left alone; the rest goes on.
        if let Some(transition) = ledger.get(*id).and_then(|task| decide(task, change, now)) {
            ledger.record(session, transition);
            changed += 1;
        }
    }
    Ok(changed)
}

fn decide(task: &Task, change: &BulkChange, now: Timestamp) -> Option<Transition> {
    match change {
        BulkChange::Cancel => None,
        BulkChange::Retry => retry::decide(task, now).ok(),
        BulkChange::Reschedule(change) => reschedule::decide(task, change, now).ok(),
    }
}
