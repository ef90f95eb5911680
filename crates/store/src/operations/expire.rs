//! Expire: deadlines that passed and attempts that hang.

use async_trait::async_trait;
use longhaul_domain::{
    TaskId,
    lifecycle::expire::{self, Overdue},
};

use crate::{
    catalog::Statement,
    failure::Failure,
    ledger::Ledger,
    random,
    session::{Operation, Session},
};

/// Ends or fails up to `limit` tasks of each kind.
#[derive(Debug)]
pub(crate) struct ExpireTasks<'a> {
    pub(crate) overdue: &'a Overdue,
    pub(crate) limit: usize,
}

#[async_trait]
impl Operation for ExpireTasks<'_> {
    type Output = usize;

    async fn run(&self, session: &mut dyn Session) -> Result<usize, Failure> {
        let clock = session.clock();
        let micros = |ms: u64| i64::try_from(ms.saturating_mul(1_000)).unwrap_or(i64::MAX / 2);
        let (silent, grace) = (micros(self.overdue.silent_ms), micros(self.overdue.timeout_grace_ms));
        let late = session.fetch(Statement::FindPastDeadline, &[clock.into(), self.limit.into()]).await?;
        let params = [clock.into(), silent.into(), grace.into(), self.limit.into()];
        let hung = session.fetch(Statement::FindOverdue, &params).await?;
        let mut ids = Vec::new();
        for row in late.iter().chain(&hung) {
            ids.push(TaskId(row.must_id(0)?));
        }
        let mut ledger = Ledger::default();
        ledger.lock(session, ids.iter().copied()).await?;
        let now = session.now().await?;
        let mut moved = 0;
        for id in ids {
            let Some(task) = ledger.get(id) else { continue };
            let decided = expire::decide_deadline(task, now)
                .or_else(|_| expire::decide_overdue(task, self.overdue, random::unit(), now));
            if let Ok(transition) = decided {
                ledger.record(session, transition);
                moved += 1;
            }
        }
        ledger.save(session, now).await?;
        Ok(moved)
    }
}
