//! The outbox: messages are leased for a while and removed when the broker has confirmed them.
//! There is no cursor, so a late commit is not skipped.

use async_trait::async_trait;
use longhaul_domain::{Invalid, bounds, event::LeasedMessage};

use super::{check_limit, read::count};
use crate::{
    catalog::Statement,
    record,
    session::{Mode, Operation, Session},
    sql_error::SqlError,
};

/// Leases messages that no process holds.
#[derive(Debug)]
pub(crate) struct LeaseOutbox {
    pub(crate) limit: usize,
    pub(crate) ttl_ms: u64,
}

#[async_trait]
impl Operation for LeaseOutbox {
    type Output = Vec<LeasedMessage>;

    fn check(&self) -> Result<(), Invalid> {
        check_limit(self.limit, bounds::MAINTENANCE_BATCH)?;
        bounds::check_duration_ms("ttl", self.ttl_ms)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<LeasedMessage>, SqlError> {
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

/// Removes published messages.
#[derive(Debug)]
pub(crate) struct ConfirmOutbox {
    pub(crate) ids: Vec<i64>,
}

#[async_trait]
impl Operation for ConfirmOutbox {
    type Output = ();
    const MODE: Mode = Mode::OneStatement;

    fn check(&self) -> Result<(), Invalid> {
        bounds::check_batch("ids", self.ids.len(), bounds::MAINTENANCE_BATCH)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<(), SqlError> {
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
    const MODE: Mode = Mode::ReadOnly;

    fn check(&self) -> Result<(), Invalid> {
        check_limit(self.limit, bounds::COUNT)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<usize, SqlError> {
        count(
            &session
                .fetch(Statement::CountOutbox, &[self.limit.into()])
                .await?,
        )
    }
}
