//! Fail waiting: tasks that cannot be brought to any node end here.

use async_trait::async_trait;
use longhaul_domain::{TaskId, contract::store, lifecycle::fail_waiting};

use crate::{
    failure::Failure,
    ledger::Ledger,
    session::{Operation, Session},
};

/// Fails those of the tasks that wait to be claimed.
#[derive(Debug)]
pub(crate) struct FailWaiting {
    pub(crate) ids: Vec<TaskId>,
    pub(crate) failure: store::Failure,
}

#[async_trait]
impl Operation for FailWaiting {
    type Output = Vec<TaskId>;

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<TaskId>, Failure> {
        let mut ids = self.ids.clone();
        ids.sort_unstable();
        ids.dedup();
        let mut ledger = Ledger::default();
        ledger.lock(session, ids.iter().copied()).await?;
        let now = session.now().await?;
        let mut failed = Vec::new();
        for id in ids {
            // Whoever claimed or ended it in between has won.
            let decide = |task: &longhaul_domain::Task| {
                fail_waiting::decide(task, self.failure.at(now, task.attempt), now).ok()
            };
            let Some(transition) = ledger.get(id).and_then(decide) else {
                continue;
            };
            ledger.record(session, transition);
            failed.push(id);
        }
        ledger.save(session, now).await?;
        Ok(failed)
    }
}
