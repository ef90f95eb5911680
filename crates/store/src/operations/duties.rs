//! Duties, which one node at a time does for all, and queues that people pause.

use async_trait::async_trait;
use longhaul_domain::{NodeId, Timestamp, node::DutyLease};

use crate::{
    catalog::Statement,
    failure::Failure,
    row::Columns as _,
    session::{Operation, Session},
};

/// Takes or renews a duty.
#[derive(Debug)]
pub(crate) struct TakeDuty {
    pub(crate) duty: String,
    pub(crate) node: NodeId,
    pub(crate) ttl_ms: u64,
}

#[async_trait]
impl Operation for TakeDuty {
    type Output = Option<DutyLease>;

    async fn run(&self, session: &mut dyn Session) -> Result<Option<DutyLease>, Failure> {
        session
            .execute(Statement::InsertDuty, &[(&self.duty).into()])
            .await?;
        let rows = session
            .fetch(Statement::LockDuty, &[(&self.duty).into()])
            .await?;
        let row = rows
            .first()
            .ok_or_else(|| Failure::internal("the duty's row is gone"))?;
        let held = row.id(0)?.map(|node| -> Result<DutyLease, Failure> {
            Ok(DutyLease {
                duty: self.duty.to_owned(),
                node_id: NodeId(node),
                epoch: u64::try_from(row.must_int(1)?).unwrap_or(0),
                leased_until: Timestamp::from_micros(row.must_int(2)?),
            })
        });
        let held = held.transpose()?;
        let now = session.now().await?;
        let granted = DutyLease::grant(held.as_ref(), &self.duty, self.node, self.ttl_ms, now);
        if let Some(lease) = &granted {
            let epoch = i64::try_from(lease.epoch).unwrap_or(i64::MAX);
            let params = [
                (&self.duty).into(),
                self.node.0.into(),
                epoch.into(),
                lease.leased_until.as_micros().into(),
            ];
            session.execute(Statement::SaveDuty, &params).await?;
        }
        Ok(granted)
    }
}

/// Stops or resumes claims from a queue.
#[derive(Debug)]
pub(crate) struct PauseQueue {
    pub(crate) name: String,
    pub(crate) paused: bool,
}

#[async_trait]
impl Operation for PauseQueue {
    type Output = ();

    async fn run(&self, session: &mut dyn Session) -> Result<(), Failure> {
        let clock = session.clock();
        session
            .execute(Statement::PauseQueue, &[clock.into(), (&self.name).into()])
            .await?;
        if !self.paused {
            session
                .execute(Statement::ResumeQueue, &[(&self.name).into()])
                .await?;
        }
        Ok(())
    }
}
