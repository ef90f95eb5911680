//! Reschedule: changes time, priority, queue or attempts of one task.

use async_trait::async_trait;
use longhaul_domain::{
    Invalid, TaskId, TaskRecord,
    contract::store::Access,
    lifecycle::reschedule::{self, Reschedule},
};

use super::visible;
use crate::{
    effects::TransactionEffects,
    session::{Operation, Session},
    sql_error::SqlError,
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
    type Output = TaskRecord;

    fn check(&self) -> Result<(), Invalid> {
        self.change.check()
    }

    async fn run(&self, session: &mut dyn Session) -> Result<TaskRecord, SqlError> {
        let mut effects = TransactionEffects::default();
        // Locked, so that no node claims the task during the change.
        effects.lock(session, [self.id]).await?;

        let task = visible(effects.get(self.id), &self.access)?;
        let now = session.now().await?;
        let transition = reschedule::decide(task, &self.change, now)?;
        let after = transition.after.clone();

        effects.record(session, transition);
        effects.save(session, now).await?;
        Ok(after)
    }
}
