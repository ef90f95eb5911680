//! Nodes: registration, heartbeat, retirement, and the declaration of death.

use async_trait::async_trait;
use longhaul_domain::{NodeId, Serves, Status, StoreError, contract::store::Verdict, task::Lease};

use super::progress::{read_holders, verdict};
use crate::{
    catalog::Statement,
    failure::Failure,
    row::Param,
    session::{Operation, Session},
};

/// Makes a node known.
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

    async fn run(&self, session: &mut dyn Session) -> Result<(), Failure> {
        let serves = self
            .serves
            .as_ref()
            .map(serde_json::to_string)
            .transpose()
            .map_err(Failure::internal)?;
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

/// Renews all leases of a node and tells which of those it believes in are gone.
#[derive(Debug)]
pub(crate) struct HeartbeatNode {
    pub(crate) id: NodeId,
    pub(crate) leases: Vec<Lease>,
}

#[async_trait]
impl Operation for HeartbeatNode {
    type Output = Vec<(Lease, Verdict)>;

    async fn run(&self, session: &mut dyn Session) -> Result<Self::Output, Failure> {
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

/// Forgets a node.
#[derive(Debug)]
pub(crate) struct RetireNode {
    pub(crate) id: NodeId,
}

#[async_trait]
impl Operation for RetireNode {
    type Output = ();

    async fn run(&self, session: &mut dyn Session) -> Result<(), Failure> {
        session
            .execute(Statement::DeleteNode, &[self.id.0.into()])
            .await?;
        Ok(())
    }
}

/// Declares every node but one dead, and frees their duties.
#[derive(Debug)]
pub(crate) struct DeclareOthersDead {
    pub(crate) survivor: NodeId,
}

#[async_trait]
impl Operation for DeclareOthersDead {
    type Output = ();

    async fn run(&self, session: &mut dyn Session) -> Result<(), Failure> {
        let clock = session.clock();
        session
            .execute(
                Statement::LoseOtherNodes,
                &[clock.into(), self.survivor.0.into()],
            )
            .await?;
        session
            .execute(Statement::FreeOtherDuties, &[self.survivor.0.into()])
            .await?;
        Ok(())
    }
}
