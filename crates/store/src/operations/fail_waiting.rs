//! Fail waiting: ends tasks that cannot reach any node.

use async_trait::async_trait;
use longhaul_domain::{Invalid, TaskId, bounds, contract::store, lifecycle::fail_waiting};

use crate::{
    effects::TransactionEffects,
    session::{Operation, Session},
    sql_error::SqlError,
};

/// Fails the given tasks, as far as they still wait.
#[derive(Debug)]
pub(crate) struct FailWaiting {
    pub(crate) ids: Vec<TaskId>,
    pub(crate) failure: store::Failure,
}

#[async_trait]
impl Operation for FailWaiting {
    type Output = Vec<TaskId>;

    fn check(&self) -> Result<(), Invalid> {
        bounds::check_batch("ids", self.ids.len(), bounds::MAINTENANCE_BATCH)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<TaskId>, SqlError> {
        let mut ids = self.ids.clone();
        ids.sort_unstable();
        ids.dedup();

        // Locked, so that no node claims them before the failures are committed.
        let mut effects = TransactionEffects::default();
        effects.lock(session, ids.iter().copied()).await?;
        let now = session.now().await?;
        let mut failed = Vec::new();

        for id in ids {
            // A task that was claimed or has ended since is skipped.
            let decide = |task: &longhaul_domain::TaskRecord| {
                fail_waiting::decide(task, self.failure.at(now, task.attempt), now).ok()
            };
            let Some(transition) = effects.get(id).and_then(decide) else {
                continue;
            };

            effects.record(session, transition);
            failed.push(id);
        }

        effects.save(session, now).await?;
        Ok(failed)
    }
}
