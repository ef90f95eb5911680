//! Retry: a person replays a task, or only its failed children.

use async_trait::async_trait;
use longhaul_domain::{
    TaskId, Timestamp,
    contract::store::{Access, RetryScope},
    lifecycle::retry,
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

/// Replays what a person names.
#[derive(Debug)]
pub(crate) struct RetryTask {
    pub(crate) access: Access,
    pub(crate) id: TaskId,
    pub(crate) scope: RetryScope,
}

#[async_trait]
impl Operation for RetryTask {
    type Output = ();

    async fn run(&self, session: &mut dyn Session) -> Result<(), Failure> {
        let mut ledger = Ledger::default();
        if self.scope == RetryScope::FailedChildren {
            let failed = failed_children(session, self.id).await?;
            ledger.lock(session, failed).await?;
        }
        ledger.lock(session, [self.id]).await?;
        let task = visible(ledger.get(self.id), &self.access)?;
        let now = session.now().await?;
        match self.scope {
            RetryScope::Task => {
                let transition = retry::decide(task, now)?;
                ledger.record(session, transition);
            }
            RetryScope::FailedChildren => {
                let transition = retry::decide_children(task, now)?;
                ledger.record(session, transition);
                redo_children(session, &mut ledger, self.id, now).await?;
            }
        }
        ledger.save(session, now).await
    }
}

async fn redo_children(
    session: &mut dyn Session,
    ledger: &mut Ledger,
    parent: TaskId,
    now: Timestamp,
) -> Result<(), Failure> {
    let failed = failed_children(session, parent).await?;
    ledger.lock(session, failed.iter().copied()).await?;
    for child in failed {
        let decided = ledger
            .get(child)
            .filter(|task| retry::is_redone(task.status))
            .map(|task| retry::decide(task, now));
        if let Some(transition) = decided.transpose()? {
            ledger.record(session, transition);
        }
    }
    Ok(())
}

async fn failed_children(
    session: &mut dyn Session,
    parent: TaskId,
) -> Result<Vec<TaskId>, Failure> {
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
