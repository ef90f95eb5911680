//! Reschedule: a person changes time, priority, queue or attempts of one task.

use async_trait::async_trait;
use longhaul_domain::{
    Task, TaskId,
    contract::store::Access,
    lifecycle::reschedule::{self, Reschedule},
};

use super::visible;
use crate::{
    failure::Failure,
    ledger::Ledger,
    session::{Operation, Session},
};

/// Changes one task and answers with it.
#[derive(Debug)]
pub(crate) struct RescheduleTask {
    pub(crate) access: Access,
    pub(crate) id: TaskId,
    pub(crate) change: Reschedule,
}

#[async_trait]
impl Operation for RescheduleTask {
    type Output = Task;

    async fn run(&self, session: &mut dyn Session) -> Result<Task, Failure> {
        let mut ledger = Ledger::default();
        ledger.lock(session, [self.id]).await?;
        let task = visible(ledger.get(self.id), &self.access)?;
        let now = session.now().await?;
        let transition = reschedule::decide(task, &self.change, now)?;
        let after = transition.after.clone();
        ledger.record(session, transition);
        ledger.save(session, now).await?;
        Ok(after)
    }
}
