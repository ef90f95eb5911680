//! Cancel: a task and everything below it.

use async_trait::async_trait;
use longhaul_domain::{Status, TaskId, Timestamp, contract::store::Access, lifecycle::cancel};

use super::visible;
use crate::{
    catalog::Statement,
    failure::Failure,
    ledger::Ledger,
    record::{self, hex_list},
    session::{Operation, Session},
};

/// Cancels a task that the caller may see, and all below it.
#[derive(Debug)]
pub(crate) struct CancelTask<'a> {
    pub(crate) access: &'a Access,
    pub(crate) id: TaskId,
}

#[async_trait]
impl Operation for CancelTask<'_> {
    type Output = Status;

    async fn run(&self, session: &mut dyn Session) -> Result<Status, Failure> {
        let mut ledger = Ledger::default();
        lock_trees(session, &mut ledger, &[self.id]).await?;
        let task = visible(ledger.get(self.id), self.access)?;
        if task.status.is_ended() {
            return Ok(task.status);
        }
        let now = session.now().await?;
        cancel_trees(session, &mut ledger, &[self.id], now).await?;
        ledger.save(session, now).await?;
        Ok(Status::Cancelled)
    }
}

/// Cancels the open ones among `roots`, which are locked, and all below them. Answers with how many roots moved.
pub(crate) async fn cancel_trees(
    session: &mut dyn Session,
    ledger: &mut Ledger,
    roots: &[TaskId],
    now: Timestamp,
) -> Result<usize, Failure> {
    let mut moved = Vec::new();
    for root in roots {
        if let Some(transition) = ledger.get(*root).and_then(|task| cancel::decide(task, now)) {
            ledger.record(session, transition);
            moved.push(*root);
        }
    }
    cancel_below(session, ledger, &moved, now).await?;
    Ok(moved.len())
}

/// Cancels every open task below `roots`, level by level, so that no parent goes on because its children ended.
pub(crate) async fn cancel_below(
    session: &mut dyn Session,
    ledger: &mut Ledger,
    roots: &[TaskId],
    now: Timestamp,
) -> Result<(), Failure> {
    let mut level = roots.to_vec();
    while !level.is_empty() {
        let children = open_children(session, &level).await?;
        ledger.lock(session, children.iter().copied()).await?;
        for child in &children {
            if let Some(transition) = ledger.get(*child).and_then(|task| cancel::decide(task, now)) {
                ledger.record(session, transition);
            }
        }
        level = children;
    }
    Ok(())
}

/// Locks the open trees below `roots` from the leaves up: the same order in which ends travel.
pub(crate) async fn lock_trees(
    session: &mut dyn Session,
    ledger: &mut Ledger,
    roots: &[TaskId],
) -> Result<(), Failure> {
    let mut levels = vec![roots.to_vec()];
    loop {
        let below = open_children(session, &levels[levels.len() - 1]).await?;
        if below.is_empty() {
            break;
        }
        levels.push(below);
    }
    for level in levels.into_iter().rev() {
        ledger.lock(session, level).await?;
    }
    Ok(())
}

async fn open_children(session: &mut dyn Session, parents: &[TaskId]) -> Result<Vec<TaskId>, Failure> {
    if parents.is_empty() {
        return Ok(Vec::new());
    }
    let list = hex_list(parents.iter().copied());
    let mut open = Vec::new();
    for row in session.fetch(Statement::FindChildren, &[(&list).into()]).await? {
        if !record::status(&row, 2)?.is_ended() {
            open.push(TaskId(row.must_id(0)?));
        }
    }
    Ok(open)
}
