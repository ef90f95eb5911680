//! Expire: deadlines that passed and attempts that hang.

use async_trait::async_trait;
use longhaul_domain::{
    Task, TaskId, Timestamp,
    contract::store::Expired,
    lifecycle::{
        Refusal, Transition,
        expire::{self, Overdue},
    },
};

use crate::{
    catalog::Statement,
    failure::Failure,
    ledger::Ledger,
    random,
    row::{Columns as _, SqlRow},
    session::{Operation, Session},
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

    async fn run(&self, session: &mut dyn Session) -> Result<Expired, Failure> {
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
        // A child's end is a sign of life of its parent, so the hung ones are looked for afterwards.
        let (silent, grace) = (
            micros(self.overdue.silent_ms),
            micros(self.overdue.timeout_grace_ms),
        );
        let params = [clock.into(), silent.into(), grace.into(), self.limit.into()];
        let hung = session.fetch(Statement::FindOverdue, &params).await?;
        let overdue =
            |task: &Task, now| expire::decide_overdue(task, &self.overdue, random::unit(), now);
        end(session, &mut expired, &hung, overdue).await?;
        Ok(expired)
    }
}

/// Locks the tasks that were found, decides on each once more, and saves.
async fn end(
    session: &mut dyn Session,
    expired: &mut Expired,
    found: &[SqlRow],
    decide: impl Fn(&Task, Timestamp) -> Result<Transition, Refusal> + Send,
) -> Result<(), Failure> {
    let ids = found
        .iter()
        .map(|row| Ok(TaskId(row.must_id(0)?)))
        .collect::<Result<Vec<_>, Failure>>()?;
    let mut ledger = Ledger::default();
    ledger.lock(session, ids.iter().copied()).await?;
    let now = session.now().await?;
    for id in ids {
        // A child that ended a moment ago may have let its parent go on.
        ledger.count_children(session, id, now)?;
        let Some(Ok(transition)) = ledger.get(id).map(|task| decide(task, now)) else {
            continue;
        };
        ledger.record(session, transition);
        expired.ended += 1;
    }
    expired
        .moved
        .extend(ledger.save_and_tell(session, now).await?);
    Ok(())
}
