//! Cancel: a task and its descendants.

use async_trait::async_trait;
use longhaul_domain::{
    Status, TaskId, Timestamp,
    contract::store::{Access, Cancelled},
    lifecycle::cancel,
};

use super::visible;
use crate::{
    catalog::Statement,
    effects::TransactionEffects,
    record::{self, hex_list},
    row::Columns as _,
    session::{Operation, Session},
    sql_error::SqlError,
};

/// Cancels a task that the caller may see, and its descendants.
#[derive(Debug)]
pub(crate) struct CancelTask {
    pub(crate) access: Access,
    pub(crate) id: TaskId,
}

#[async_trait]
impl Operation for CancelTask {
    type Output = Cancelled;

    async fn run(&self, session: &mut dyn Session) -> Result<Cancelled, SqlError> {
        let mut effects = TransactionEffects::default();
        // Locked before the decision, so that no task of the tree ends in between.
        lock_trees(session, &mut effects, &[self.id]).await?;

        let task = visible(effects.get(self.id), &self.access)?;
        if task.status.is_ended() {
            return Ok(Cancelled {
                status: task.status,
                moved: Vec::new(),
            });
        }

        let now = session.now().await?;
        cancel_trees(session, &mut effects, &[self.id], now).await?;
        let moved = effects.save_and_tell(session, now).await?;

        Ok(Cancelled {
            status: Status::Cancelled,
            moved,
        })
    }
}

/// Cancels the open tasks among the locked `roots`, and their descendants. Answers with the number
/// of open roots.
pub(crate) async fn cancel_trees(
    session: &mut dyn Session,
    effects: &mut TransactionEffects,
    roots: &[TaskId],
    now: Timestamp,
) -> Result<usize, SqlError> {
    let is_open = |id: &&TaskId| {
        effects
            .get(**id)
            .is_some_and(|task| !task.status.is_ended())
    };
    let open: Vec<TaskId> = roots.iter().filter(is_open).copied().collect();

    cancel_below(session, effects, &open, now).await?;
    // A root below another one has been cancelled with it.
    open.iter()
        .for_each(|root| cancel_locked(session, effects, *root, now));

    Ok(open.len())
}

/// Cancels every open task below `roots`, deepest first. Saving the effects settles the counters,
/// so no parent resumes because its children ended here.
pub(crate) async fn cancel_below(
    session: &mut dyn Session,
    effects: &mut TransactionEffects,
    roots: &[TaskId],
    now: Timestamp,
) -> Result<(), SqlError> {
    for level in open_levels(session, roots).await?.into_iter().rev() {
        // Locked one level at a time, deepest first, as in `lock_trees`.
        effects.lock(session, level.iter().copied()).await?;
        level
            .iter()
            .for_each(|id| cancel_locked(session, effects, *id, now));
    }
    Ok(())
}

fn cancel_locked(
    session: &dyn Session,
    effects: &mut TransactionEffects,
    id: TaskId,
    now: Timestamp,
) {
    if let Some(transition) = effects.get(id).and_then(|task| cancel::decide(task, now)) {
        effects.record(session, transition);
    }
}

/// Locks the open tasks below `roots`, then the roots. Ends travel from the leaves up, so locks are
/// taken in that order.
pub(crate) async fn lock_trees(
    session: &mut dyn Session,
    effects: &mut TransactionEffects,
    roots: &[TaskId],
) -> Result<(), SqlError> {
    for level in open_levels(session, roots).await?.into_iter().rev() {
        effects.lock(session, level).await?;
    }
    effects.lock(session, roots.iter().copied()).await
}

/// The open tasks below `roots`, by level, including those below an ended task.
async fn open_levels(
    session: &mut dyn Session,
    roots: &[TaskId],
) -> Result<Vec<Vec<TaskId>>, SqlError> {
    let mut levels = Vec::new();
    let mut level = roots.to_vec();
    while !level.is_empty() {
        let list = hex_list(level);
        let mut all = Vec::new();
        let mut open = Vec::new();
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
