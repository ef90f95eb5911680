//! Nodes: registration, heartbeat, retirement, and the declaration of death.

use async_trait::async_trait;
use longhaul_domain::{
    Invalid, NodeId, NodeRecord, Serves, Status, StoreError, bounds, contract::store::Verdict,
    task::Lease,
};

use super::progress::{read_holders, verdict};
use crate::{
    catalog::Statement,
    row::Param,
    session::{Mode, Operation, Session},
    sql_error::SqlError,
};

/// Registers a node.
#[derive(Debug)]
pub(crate) struct RegisterNode {
    pub(crate) id: NodeId,
    pub(crate) name: String,
    pub(crate) host: String,
    pub(crate) serves: Option<Serves>,
}

#[async_trait]
impl Operation for RegisterNode {
    type Output = ();
    const MODE: Mode = Mode::OneStatement;

    fn check(&self) -> Result<(), Invalid> {
        NodeRecord::check(&self.name, &self.host)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<(), SqlError> {
        let serves = self
            .serves
            .as_ref()
            .map(serde_json::to_string)
            .transpose()
            .map_err(SqlError::internal)?;

        let params = [
            session.clock().into(),
            self.id.0.into(),
            (&self.name).into(),
            (&self.host).into(),
            Param::Text(serves.as_deref()),
        ];

        session.execute(Statement::InsertNode, &params).await?;
        Ok(())
    }
}

/// Renews all leases of a node. Answers with those of its leases that no longer hold.
#[derive(Debug)]
pub(crate) struct HeartbeatNode {
    pub(crate) id: NodeId,
    pub(crate) leases: Vec<Lease>,
}

#[async_trait]
impl Operation for HeartbeatNode {
    type Output = Vec<(Lease, Verdict)>;

    fn check(&self) -> Result<(), Invalid> {
        bounds::check_batch("leases", self.leases.len(), bounds::CLAIM_BATCH)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<Self::Output, SqlError> {
        let clock = session.clock();
        if session
            .execute(Statement::BeatNode, &[clock.into(), self.id.0.into()])
            .await?
            == 0
        {
            return Err(StoreError::NodeLost.into());
        }

        let held = read_holders(session, Statement::ReadLeases, &self.leases).await?;
        let told = self
            .leases
            .iter()
            .map(|lease| (*lease, verdict(&held, lease)));

        Ok(told
            .filter(|(_, verdict)| *verdict != Verdict::Applied(Status::Running))
            .collect())
    }
}

/// Removes a node.
#[derive(Debug)]
pub(crate) struct RetireNode {
    pub(crate) id: NodeId,
}

#[async_trait]
impl Operation for RetireNode {
    type Output = ();
    const MODE: Mode = Mode::OneStatement;

    async fn run(&self, session: &mut dyn Session) -> Result<(), SqlError> {
        session
            .execute(Statement::DeleteNode, &[self.id.0.into()])
            .await?;
        Ok(())
    }
}

/// Declares every other node dead and frees its maintenance leases.
#[derive(Debug)]
pub(crate) struct DeclareOthersDead {
    pub(crate) survivor: NodeId,
}

#[async_trait]
impl Operation for DeclareOthersDead {
    type Output = ();

    async fn run(&self, session: &mut dyn Session) -> Result<(), SqlError> {
        let clock = session.clock();
        session
            .execute(
                Statement::LoseOtherNodes,
                &[clock.into(), self.survivor.0.into()],
            )
            .await?;

        // Dead nodes must not hold maintenance leases.
        session
            .execute(
                Statement::FreeOtherMaintenanceLeases,
                &[self.survivor.0.into()],
            )
            .await?;

        Ok(())
    }
}
