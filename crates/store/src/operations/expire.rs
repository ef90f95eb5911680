//! Expire: tasks past their deadline, and attempts that hang.

use async_trait::async_trait;
use longhaul_domain::{
    Invalid, TaskId, TaskRecord, Timestamp, bounds,
    contract::store::Expired,
    lifecycle::{
        Refusal, Transition,
        expire::{self, Overdue},
    },
};

use super::check_limit;
use crate::{
    catalog::Statement,
    effects::TransactionEffects,
    random,
    row::{Columns as _, SqlRow},
    session::{Operation, Session},
    sql_error::SqlError,
};

/// Ends or fails up to `limit` tasks of each kind.
#[derive(Debug)]
pub(crate) struct ExpireTasks {
    pub(crate) overdue: Overdue,
    pub(crate) limit: usize,
}

#[async_trait]
impl Operation for ExpireTasks {
    type Output = Expired;

    fn check(&self) -> Result<(), Invalid> {
        check_limit(self.limit, bounds::MAINTENANCE_BATCH)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<Expired, SqlError> {
        let clock = session.clock();
        let micros = |ms: u64| i64::try_from(ms.saturating_mul(1_000)).unwrap_or(i64::MAX / 2);
        let late = session
            .fetch(
                Statement::FindPastDeadline,
                &[clock.into(), self.limit.into()],
            )
            .await?;

        let mut expired = Expired::default();
        end(session, &mut expired, &late, expire::decide_deadline).await?;

        // A child's end counts as activity of its parent, so hung attempts are searched afterwards.
        let silent = micros(self.overdue.silent_ms);
        let grace = micros(self.overdue.timeout_grace_ms);
        let params = [clock.into(), silent.into(), grace.into(), self.limit.into()];
        let hung = session.fetch(Statement::FindOverdue, &params).await?;
        let overdue = |task: &TaskRecord, now| {
            expire::decide_overdue(task, &self.overdue, random::unit(), now)
        };

        end(session, &mut expired, &hung, overdue).await?;
        Ok(expired)
    }
}

/// Locks the found tasks, decides on each again, and saves.
async fn end(
    session: &mut dyn Session,
    expired: &mut Expired,
    found: &[SqlRow],
    decide: impl Fn(&TaskRecord, Timestamp) -> Result<Transition, Refusal> + Send,
) -> Result<(), SqlError> {
    let ids = found
        .iter()
        .map(|row| Ok(TaskId(row.must_id(0)?)))
        .collect::<Result<Vec<_>, SqlError>>()?;
    let mut effects = TransactionEffects::default();

    // The search took no locks: lock, then decide on the current rows.
    effects.lock(session, ids.iter().copied()).await?;
    let now = session.now().await?;

    for id in ids {
        // A child that just ended may have let its parent resume.
        effects.count_children(session, id, now)?;
        let Some(Ok(transition)) = effects.get(id).map(|task| decide(task, now)) else {
            continue;
        };

        effects.record(session, transition);
        expired.ended += 1;
    }

    expired
        .moved
        .extend(effects.save_and_tell(session, now).await?);
    Ok(())
}
