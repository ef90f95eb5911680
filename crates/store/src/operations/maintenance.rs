//! Maintenance leases, each held by one node for all, and paused queues.

use async_trait::async_trait;
use longhaul_domain::{Invalid, NodeId, QueueName, Timestamp, bounds, node::MaintenanceLease};

use crate::{
    catalog::Statement,
    row::Columns as _,
    session::{Operation, Session},
    sql_error::SqlError,
};

/// Takes or renews a maintenance lease.
#[derive(Debug)]
pub(crate) struct TakeMaintenanceLease {
    pub(crate) job: String,
    pub(crate) node: NodeId,
    pub(crate) ttl_ms: u64,
}

#[async_trait]
impl Operation for TakeMaintenanceLease {
    type Output = Option<MaintenanceLease>;

    fn check(&self) -> Result<(), Invalid> {
        bounds::check_label("job", &self.job)?;
        bounds::check_duration_ms("ttl", self.ttl_ms)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<Option<MaintenanceLease>, SqlError> {
        session
            .execute(Statement::InsertMaintenanceLease, &[(&self.job).into()])
            .await?;
        let rows = session
            .fetch(Statement::LockMaintenanceLease, &[(&self.job).into()])
            .await?;
        let row = rows
            .first()
            .ok_or_else(|| SqlError::internal("the job's row is gone"))?;

        let held = row
            .id(0)?
            .map(|node| -> Result<MaintenanceLease, SqlError> {
                Ok(MaintenanceLease {
                    job: self.job.to_owned(),
                    node_id: NodeId(node),
                    epoch: u64::try_from(row.must_int(1)?).unwrap_or(0),
                    leased_until: Timestamp::from_micros(row.must_int(2)?),
                })
            });

        let held = held.transpose()?;
        let now = session.now().await?;
        let granted =
            MaintenanceLease::grant(held.as_ref(), &self.job, self.node, self.ttl_ms, now);
        if let Some(lease) = &granted {
            let epoch = i64::try_from(lease.epoch).unwrap_or(i64::MAX);
            let params = [
                (&self.job).into(),
                self.node.0.into(),
                epoch.into(),
                lease.leased_until.as_micros().into(),
            ];

            session
                .execute(Statement::SaveMaintenanceLease, &params)
                .await?;
        }

        Ok(granted)
    }
}

/// Pauses or resumes claims from a queue.
#[derive(Debug)]
pub(crate) struct PauseQueue {
    pub(crate) name: QueueName,
    pub(crate) paused: bool,
}

#[async_trait]
impl Operation for PauseQueue {
    type Output = ();

    async fn run(&self, session: &mut dyn Session) -> Result<(), SqlError> {
        let clock = session.clock();
        session
            .execute(
                Statement::PauseQueue,
                &[clock.into(), self.name.as_str().into()],
            )
            .await?;
        if !self.paused {
            session
                .execute(Statement::ResumeQueue, &[self.name.as_str().into()])
                .await?;
        }

        Ok(())
    }
}
