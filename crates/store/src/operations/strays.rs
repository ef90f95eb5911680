//! Strays: tasks that run on a node which does not know of them, because the answer to its claim
//! was lost. The node's heartbeat would renew their leases forever. This operation hands them back
//! without a charge.

use std::collections::HashSet;

use async_trait::async_trait;
use longhaul_domain::{Invalid, Lease, LeaseToken, NodeId, TaskId, bounds, lifecycle::hand_back};

use crate::{
    catalog::Statement,
    effects::TransactionEffects,
    record,
    row::{Columns as _, SqlRow},
    session::{Operation, Session},
    sql_error::SqlError,
};

/// Hands back tasks that run on `node`, were claimed long enough ago, and are not among its known
/// leases.
#[derive(Debug)]
pub(crate) struct HandBackStrays {
    pub(crate) node: NodeId,
    pub(crate) known: Vec<Lease>,
    pub(crate) older_than_ms: u64,
}

#[async_trait]
impl Operation for HandBackStrays {
    type Output = Vec<TaskId>;

    fn check(&self) -> Result<(), Invalid> {
        bounds::check_batch("known", self.known.len(), bounds::HELD)?;
        bounds::check_duration_ms("olderThan", self.older_than_ms)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<TaskId>, SqlError> {
        let strays = self.find(session).await?;
        let mut effects = TransactionEffects::default();
        // The search took no locks: lock, then decide on the current rows.
        effects
            .lock(session, strays.iter().map(|lease| lease.task_id))
            .await?;

        let now = session.now().await?;
        let mut handed_back = Vec::with_capacity(strays.len());

        for lease in strays {
            // A task that ended or was claimed again since has another lease and is skipped.
            let decided = effects
                .get(lease.task_id)
                .and_then(|task| hand_back::decide(task, &lease, now).ok());
            let Some(transition) = decided else { continue };

            handed_back.push(lease.task_id);
            effects.record(session, transition);
        }

        effects.save(session, now).await?;
        Ok(handed_back)
    }
}

impl HandBackStrays {
    /// The leases that the node does not know of, oldest task first.
    async fn find(&self, session: &mut dyn Session) -> Result<Vec<Lease>, SqlError> {
        let older_us =
            i64::try_from(self.older_than_ms.saturating_mul(1_000)).unwrap_or(i64::MAX / 2);

        // Known leases take up rows too. The larger limit keeps them from hiding strays.
        let limit = bounds::MAINTENANCE_BATCH + self.known.len();
        let params = [
            session.clock().into(),
            self.node.0.into(),
            older_us.into(),
            limit.into(),
        ];

        let rows = session.fetch(Statement::FindStrays, &params).await?;
        let known: HashSet<&Lease> = self.known.iter().collect();
        let mut strays = rows
            .iter()
            .filter_map(|row| lease(row).transpose())
            .collect::<Result<Vec<_>, _>>()?;

        strays.retain(|lease| !known.contains(lease));
        strays.truncate(bounds::MAINTENANCE_BATCH);
        Ok(strays)
    }
}

/// The lease of a row, or none if its token is unreadable.
fn lease(row: &SqlRow) -> Result<Option<Lease>, SqlError> {
    let task_id = TaskId(row.must_id(0)?);
    let token = record::any_id(row, 2).map(LeaseToken);
    Ok(token.map(|token| Lease {
        task_id,
        attempt: record::attempt_number(row, 1),
        token,
    }))
}
