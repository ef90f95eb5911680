//! Rescue: returns tasks of dead nodes to their queue. It works on rows and knows no handlers.

use async_trait::async_trait;
use longhaul_domain::{
    Invalid, NodeId, Status, TaskId, bounds,
    contract::store::{RescueRequest, Rescued},
    lifecycle::rescue,
};

use super::{check_limit, host_affinity};
use crate::{
    catalog::Statement,
    effects::TransactionEffects,
    record,
    row::Columns as _,
    session::{Operation, Session},
    sql_error::SqlError,
};

/// Declares silent nodes dead and takes up to `limit` tasks from them.
#[async_trait]
impl Operation for RescueRequest {
    type Output = Rescued;

    fn check(&self) -> Result<(), Invalid> {
        bounds::check_duration_ms("lease", self.lease_ms)?;
        bounds::check_duration_ms("keepForHost", self.host_affinity_ms)?;
        check_limit(self.limit, bounds::MAINTENANCE_BATCH)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<Rescued, SqlError> {
        let lease_us = i64::try_from(self.lease_ms.saturating_mul(1_000)).unwrap_or(i64::MAX);
        let clock = session.clock();

        // Without an asker, the nil id: no node has it.
        let asker = self.asker.map_or_else(uuid::Uuid::nil, |node| node.0);

        session
            .execute(
                Statement::LoseSilentNodes,
                &[clock.into(), lease_us.into(), asker.into()],
            )
            .await?;

        let rows = session
            .fetch(Statement::FindRescuable, &[self.limit.into()])
            .await?;
        let mut held = Vec::new();
        for row in &rows {
            held.push((TaskId(row.must_id(0)?), record::any_id(row, 1).map(NodeId)));
        }

        let mut effects = TransactionEffects::default();
        // The search took no locks: lock, then decide on the current rows.
        effects
            .lock(session, held.iter().map(|(id, _)| *id))
            .await?;

        let now = session.now().await?;
        let mut rescued = Rescued::default();
        let mut kept = Vec::new();

        for (id, dead) in held {
            // A task that finished or was rescued since is refused and skipped.
            let decided = effects
                .get(id)
                .and_then(|task| rescue::decide(task, dead, self.max_crashes, now).ok());
            let Some(mut transition) = decided else {
                continue;
            };

            if self.host_affinity_ms > 0 {
                transition = rescue::host_affinity(transition, self.host_affinity_ms, now);
                kept.push(transition.after.clone());
            }

            match transition.after.status == Status::DeadLetter {
                true => rescued.quarantined.push(id),
                false => rescued.requeued.push(id),
            }

            effects.record(session, transition);
        }

        effects.save(session, now).await?;

        // Expired reservations go before new ones are made.
        session
            .execute(Statement::PruneHostAffinity, &[clock.into()])
            .await?;
        host_affinity::keep(session, &kept).await?;

        Ok(rescued)
    }
}
