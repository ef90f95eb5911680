//! Strays: tasks that run on a node which does not know of them, because the answer to its claim was lost. The node's
//! own heartbeat would keep them for ever. They are handed back, and nothing is charged.

use std::collections::HashSet;

use async_trait::async_trait;
use longhaul_domain::{Lease, LeaseToken, NodeId, TaskId, bounds, lifecycle::hand_back};

use crate::{
    catalog::Statement,
    failure::Failure,
    ledger::Ledger,
    record,
    row::{Columns as _, SqlRow},
    session::{Operation, Session},
};

/// Hands back what runs on `node`, was claimed long enough ago, and is not among the leases that it holds.
#[derive(Debug)]
pub(crate) struct HandBackStrays {
    pub(crate) node: NodeId,
    pub(crate) held: Vec<Lease>,
    pub(crate) older_than_ms: u64,
}

#[async_trait]
impl Operation for HandBackStrays {
    type Output = Vec<TaskId>;

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<TaskId>, Failure> {
        let strays = self.find(session).await?;
        let mut ledger = Ledger::default();
        ledger
            .lock(session, strays.iter().map(|lease| lease.task_id))
            .await?;
        let now = session.now().await?;
        let mut handed_back = Vec::with_capacity(strays.len());
        for lease in strays {
            // The lease is the one that was found, so whoever ended or took the task in between has won.
            let decided = ledger
                .get(lease.task_id)
                .and_then(|task| hand_back::decide(task, &lease, now).ok());
            let Some(transition) = decided else { continue };
            handed_back.push(lease.task_id);
            ledger.record(session, transition);
        }
        ledger.save(session, now).await?;
        Ok(handed_back)
    }
}

impl HandBackStrays {
    /// The leases that the node does not know of, oldest task first.
    async fn find(&self, session: &mut dyn Session) -> Result<Vec<Lease>, Failure> {
        let older_us =
            i64::try_from(self.older_than_ms.saturating_mul(1_000)).unwrap_or(i64::MAX / 2);
        // What is held may come first, and must not hide the strays behind it.
        let limit = bounds::MAINTENANCE_BATCH + self.held.len();
        let params = [
            session.clock().into(),
            self.node.0.into(),
            older_us.into(),
            limit.into(),
        ];
        let rows = session.fetch(Statement::FindStrays, &params).await?;
        let held: HashSet<&Lease> = self.held.iter().collect();
        let mut strays = rows
            .iter()
            .filter_map(|row| lease(row).transpose())
            .collect::<Result<Vec<_>, _>>()?;
        strays.retain(|lease| !held.contains(lease));
        strays.truncate(bounds::MAINTENANCE_BATCH);
        Ok(strays)
    }
}

/// The lease of a row; none if its token cannot be read.
fn lease(row: &SqlRow) -> Result<Option<Lease>, Failure> {
    let task_id = TaskId(row.must_id(0)?);
    let token = record::any_id(row, 2).map(LeaseToken);
    Ok(token.map(|token| Lease {
        task_id,
        attempt: record::attempt_number(row, 1),
        token,
    }))
}
