//! Rescue: tasks of dead nodes go back to their queue. It knows rows, never handlers.

use async_trait::async_trait;
use longhaul_domain::{
    NodeId, Status, TaskId,
    contract::store::{RescueRequest, Rescued},
    lifecycle::rescue,
};

use super::kept;
use crate::{
    catalog::Statement,
    failure::Failure,
    ledger::Ledger,
    record,
    row::Columns as _,
    session::{Operation, Session},
};

/// Declares silent nodes dead and takes up to `limit` tasks from the dead.
#[derive(Debug)]
pub(crate) struct RescueTasks {
    pub(crate) request: RescueRequest,
}

#[async_trait]
impl Operation for RescueTasks {
    type Output = Rescued;

    async fn run(&self, session: &mut dyn Session) -> Result<Rescued, Failure> {
        let lease_us =
            i64::try_from(self.request.lease_ms.saturating_mul(1_000)).unwrap_or(i64::MAX);
        let clock = session.clock();
        // No node has the id of nobody.
        let asker = self
            .request
            .asker
            .map_or_else(uuid::Uuid::nil, |node| node.0);
        session
            .execute(
                Statement::LoseSilentNodes,
                &[clock.into(), lease_us.into(), asker.into()],
            )
            .await?;
        let rows = session
            .fetch(Statement::FindRescuable, &[self.request.limit.into()])
            .await?;
        let mut held = Vec::new();
        for row in &rows {
            held.push((TaskId(row.must_id(0)?), record::any_id(row, 1).map(NodeId)));
        }
        let mut ledger = Ledger::default();
        ledger.lock(session, held.iter().map(|(id, _)| *id)).await?;
        let now = session.now().await?;
        let (mut rescued, mut kept) = (Rescued::default(), Vec::new());
        for (id, dead) in held {
            // Whoever finished or rescued it in between has won: the refusal is the verdict.
            let decided = ledger
                .get(id)
                .and_then(|task| rescue::decide(task, dead, self.request.max_crashes, now).ok());
            let Some(mut transition) = decided else {
                continue;
            };
            if self.request.keep_for_host_ms > 0 {
                transition = rescue::keep_for_host(transition, self.request.keep_for_host_ms, now);
                kept.push(transition.after.clone());
            }
            match transition.after.status == Status::DeadLetter {
                true => rescued.quarantined.push(id),
                false => rescued.requeued.push(id),
            }
            ledger.record(session, transition);
        }
        ledger.save(session, now).await?;
        session
            .execute(Statement::PruneKept, &[clock.into()])
            .await?;
        kept::keep(session, &kept).await?;
        Ok(rescued)
    }
}
