//! Cancel: a task and everything below it.

use async_trait::async_trait;
use longhaul_domain::{
    Status, TaskId, Timestamp,
    contract::store::{Access, Cancelled},
    lifecycle::cancel,
};

use super::visible;
use crate::{
    catalog::Statement,
    failure::Failure,
    ledger::Ledger,
    record::{self, hex_list},
    row::Columns as _,
    session::{Operation, Session},
};

/// Cancels a task that the caller may see, and all below it.
#[derive(Debug)]
pub(crate) struct CancelTask {
    pub(crate) access: Access,
    pub(crate) id: TaskId,
}

#[async_trait]
impl Operation for CancelTask {
    type Output = Cancelled;

    async fn run(&self, session: &mut dyn Session) -> Result<Cancelled, Failure> {
        let mut ledger = Ledger::default();
        lock_trees(session, &mut ledger, &[self.id]).await?;
        let task = visible(ledger.get(self.id), &self.access)?;
        if task.status.is_ended() {
            return Ok(Cancelled {
                status: task.status,
                moved: Vec::new(),
            });
        }
        let now = session.now().await?;
        cancel_trees(session, &mut ledger, &[self.id], now).await?;
        let moved = ledger.save_and_tell(session, now).await?;
        Ok(Cancelled {
            status: Status::Cancelled,
            moved,
        })
    }
}

/// Cancels the open ones among `roots`, which are locked, and all below them. Answers with how many roots moved.
pub(crate) async fn cancel_trees(
    session: &mut dyn Session,
    ledger: &mut Ledger,
    roots: &[TaskId],
    now: Timestamp,
) -> Result<usize, Failure> {
    let is_open = |id: &&TaskId| ledger.get(**id).is_some_and(|task| !task.status.is_ended());
    let open: Vec<TaskId> = roots.iter().filter(is_open).copied().collect();
    cancel_below(session, ledger, &open, now).await?;
    // A root may lie below another one, and has been cancelled with it.
    open.iter()
        .for_each(|root| cancel_locked(session, ledger, *root, now));
    Ok(open.len())
}

/// Cancels every open task below `roots`, the deepest first. Counters are settled when the ledger is saved, so no
/// parent goes on because its children ended here.
pub(crate) async fn cancel_below(
    session: &mut dyn Session,
    ledger: &mut Ledger,
    roots: &[TaskId],
    now: Timestamp,
) -> Result<(), Failure> {
    for level in open_levels(session, roots).await?.into_iter().rev() {
        ledger.lock(session, level.iter().copied()).await?;
        level
            .iter()
            .for_each(|id| cancel_locked(session, ledger, *id, now));
    }
    Ok(())
}

fn cancel_locked(session: &dyn Session, ledger: &mut Ledger, id: TaskId, now: Timestamp) {
    if let Some(transition) = ledger.get(id).and_then(|task| cancel::decide(task, now)) {
        ledger.record(session, transition);
    }
}

/// Locks the open tasks below `roots` and then the roots, from the leaves up: the order in which ends travel.
pub(crate) async fn lock_trees(
    session: &mut dyn Session,
    ledger: &mut Ledger,
    roots: &[TaskId],
) -> Result<(), Failure> {
    for level in open_levels(session, roots).await?.into_iter().rev() {
        ledger.lock(session, level).await?;
    }
    ledger.lock(session, roots.iter().copied()).await
}

/// The open tasks below `roots`, level by level; what is open below an ended task is among them.
async fn open_levels(
    session: &mut dyn Session,
    roots: &[TaskId],
) -> Result<Vec<Vec<TaskId>>, Failure> {
    let mut levels = Vec::new();
    let mut level = roots.to_vec();
    while !level.is_empty() {
        let list = hex_list(level);
        let (mut all, mut open) = (Vec::new(), Vec::new());
        for row in session
            .fetch(Statement::FindChildren, &[(&list).into()])
            .await?
        {
            all.push(TaskId(row.must_id(0)?));
            if !record::status(&row, 2)?.is_ended() {
                open.push(TaskId(row.must_id(0)?));
            }
        }
        levels.push(open);
        level = all;
    }
    Ok(levels)
}
