//! Retry: replays a task, or only its failed children.

use async_trait::async_trait;
use longhaul_domain::{
    TaskId, Timestamp,
    contract::store::{Access, RetryScope},
    lifecycle::retry,
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

/// Retries a task or its failed children.
#[derive(Debug)]
pub(crate) struct RetryTask {
    pub(crate) access: Access,
    pub(crate) id: TaskId,
    pub(crate) scope: RetryScope,
}

#[async_trait]
impl Operation for RetryTask {
    type Output = ();

    async fn run(&self, session: &mut dyn Session) -> Result<(), SqlError> {
        let mut effects = TransactionEffects::default();
        if self.scope == RetryScope::FailedChildren {
            let failed = failed_children(session, self.id).await?;
            // Children are locked before their parent, in the order in which ends travel.
            effects.lock(session, failed).await?;
        }

        effects.lock(session, [self.id]).await?;
        let task = visible(effects.get(self.id), &self.access)?;
        let now = session.now().await?;

        match self.scope {
            RetryScope::Task => {
                let transition = retry::decide(task, now)?;
                effects.record(session, transition);
            }
            RetryScope::FailedChildren => {
                let transition = retry::decide_children(task, now)?;
                effects.record(session, transition);
                redo_children(session, &mut effects, self.id, now).await?;
            }
        }

        effects.save(session, now).await
    }
}

async fn redo_children(
    session: &mut dyn Session,
    effects: &mut TransactionEffects,
    parent: TaskId,
    now: Timestamp,
) -> Result<(), SqlError> {
    let failed = failed_children(session, parent).await?;
    // Includes children that failed since the first search.
    effects.lock(session, failed.iter().copied()).await?;

    for child in failed {
        let decided = effects
            .get(child)
            .filter(|task| retry::is_redone(task.status))
            .map(|task| retry::decide(task, now));
        if let Some(transition) = decided.transpose()? {
            effects.record(session, transition);
        }
    }

    Ok(())
}

async fn failed_children(
    session: &mut dyn Session,
    parent: TaskId,
) -> Result<Vec<TaskId>, SqlError> {
    let list = hex_list([parent]);
    let mut failed = Vec::new();
    for row in session
        .fetch(Statement::FindChildren, &[(&list).into()])
        .await?
    {
        if retry::is_redone(record::status(&row, 2)?) {
            failed.push(TaskId(row.must_id(0)?));
        }
    }

    Ok(failed)
}
