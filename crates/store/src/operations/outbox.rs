//! The outbox: handed out for a while, removed when the broker has confirmed. No cursor, so nothing that is
//! committed late is skipped.

use async_trait::async_trait;
use longhaul_domain::event::LeasedMessage;

use super::read::count;
use crate::{
    catalog::Statement,
    failure::Failure,
    record,
    session::{Operation, Session},
};

/// Hands out messages that nobody holds.
#[derive(Debug)]
pub(crate) struct LeaseOutbox {
    pub(crate) limit: usize,
    pub(crate) ttl_ms: u64,
}

#[async_trait]
impl Operation for LeaseOutbox {
    type Output = Vec<LeasedMessage>;

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<LeasedMessage>, Failure> {
        let clock = session.clock();
        let rows = session
            .fetch(Statement::FindOutbox, &[clock.into(), self.limit.into()])
            .await?;
        let messages = rows
            .iter()
            .map(record::message)
            .collect::<Result<Vec<_>, _>>()?;
        if !messages.is_empty() {
            let ids: Vec<i64> = messages.iter().map(|message| message.id).collect();
            let list = serde_json::to_string(&ids)?;
            let ttl_us = i64::try_from(self.ttl_ms.saturating_mul(1_000)).unwrap_or(i64::MAX / 2);
            session
                .execute(
                    Statement::HoldOutbox,
                    &[clock.into(), ttl_us.into(), (&list).into()],
                )
                .await?;
        }
        Ok(messages)
    }
}

/// Removes messages that are published.
#[derive(Debug)]
pub(crate) struct ConfirmOutbox {
    pub(crate) ids: Vec<i64>,
}

#[async_trait]
impl Operation for ConfirmOutbox {
    type Output = ();

    async fn run(&self, session: &mut dyn Session) -> Result<(), Failure> {
        let list = serde_json::to_string(&self.ids)?;
        session
            .execute(Statement::DeleteOutbox, &[(&list).into()])
            .await?;
        Ok(())
    }
}

/// How many messages wait, up to a limit.
#[derive(Debug)]
pub(crate) struct CountOutbox {
    pub(crate) limit: usize,
}

#[async_trait]
impl Operation for CountOutbox {
    type Output = usize;

    async fn run(&self, session: &mut dyn Session) -> Result<usize, Failure> {
        count(
            &session
                .fetch(Statement::CountOutbox, &[self.limit.into()])
                .await?,
        )
    }
}
