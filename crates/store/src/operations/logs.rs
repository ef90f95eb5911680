//! Log lines: appended under the lease of the running attempt, trimmed as they grow, listed by
//! number.

use async_trait::async_trait;
use longhaul_domain::{
    Invalid, Lease, LogLine, LogPage, Status, StoreError, TaskId, bounds,
    contract::store::{Access, Verdict},
};
use serde::Serialize;

use super::check_limit;
use super::progress::{read_holders, verdict};
use crate::{
    catalog::Statement,
    record::{self, hex, hex_list},
    row::Columns as _,
    session::{Mode, Operation, Session},
    split_by_bytes::split_by_bytes,
    sql_error::SqlError,
};

/// Appends lines of running attempts. Answers with one verdict for each.
#[derive(Debug)]
pub(crate) struct AppendLogs {
    pub(crate) entries: Vec<LogLine>,
}

/// A line as `append_logs` takes it.
#[derive(Serialize)]
struct LogRow {
    task_id: String,
    attempt: u32,
    level: &'static str,
    message: String,
}

impl LogRow {
    fn new(line: &LogLine) -> Self {
        let Lease {
            task_id, attempt, ..
        } = line.lease;
        Self {
            task_id: hex(task_id.0),
            attempt,
            level: line.level.as_str(),
            message: line.storable_message(),
        }
    }
}

#[async_trait]
impl Operation for AppendLogs {
    type Output = Vec<Verdict>;

    fn check(&self) -> Result<(), Invalid> {
        bounds::check_batch("lines", self.entries.len(), bounds::LOG_BATCH)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<Verdict>, SqlError> {
        let leases: Vec<Lease> = self.entries.iter().map(|line| line.lease).collect();

        // The tasks stay locked until commit. No attempt ends in between, and of two writers to one
        // task the second gets the higher numbers.
        let held = read_holders(session, Statement::LockLeases, &leases).await?;
        let verdicts: Vec<Verdict> = leases.iter().map(|lease| verdict(&held, lease)).collect();

        let kept = self
            .entries
            .iter()
            .zip(&verdicts)
            .filter(|(_, told)| **told == Verdict::Applied(Status::Running));

        let kept: Vec<&LogLine> = kept.map(|(line, _)| line).collect();
        if kept.is_empty() {
            return Ok(verdicts);
        }

        let rows: Vec<LogRow> = kept.iter().map(|line| LogRow::new(line)).collect();
        for chunk in split_by_bytes(&rows, |row| 200 + row.message.len()) {
            let document = serde_json::to_string(chunk)?;
            let clock = session.clock();
            session
                .execute(Statement::AppendLogs, &[clock.into(), (&document).into()])
                .await?;
        }

        let mut written: Vec<TaskId> = kept.iter().map(|line| line.lease.task_id).collect();
        written.sort_unstable();
        written.dedup();
        trim(session, written).await?;

        Ok(verdicts)
    }
}

/// Removes the oldest lines of tasks over the limit. Only these tasks are counted; the slack makes
/// removals rare.
async fn trim(session: &mut dyn Session, tasks: Vec<TaskId>) -> Result<(), SqlError> {
    let list = hex_list(tasks);
    let most = bounds::LOG_LINES + bounds::LOG_SLACK;

    for row in session
        .fetch(Statement::FindLongLogs, &[(&list).into(), most.into()])
        .await?
    {
        let excess = row.must_int(1)? - bounds::LOG_LINES as i64;
        session
            .execute(
                Statement::TrimLogs,
                &[row.must_id(0)?.into(), excess.into()],
            )
            .await?;
    }

    Ok(())
}

/// A page of the lines of a task that the caller may see.
#[derive(Debug)]
pub(crate) struct ListLogs {
    pub(crate) access: Access,
    pub(crate) id: TaskId,
    pub(crate) after: Option<u64>,
    pub(crate) limit: usize,
}

#[async_trait]
impl Operation for ListLogs {
    type Output = LogPage;
    const MODE: Mode = Mode::ReadOnly;

    fn check(&self) -> Result<(), Invalid> {
        check_limit(self.limit, bounds::PAGE_SIZE)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<LogPage, SqlError> {
        check_owner(session, &self.access, self.id).await?;
        let after = self
            .after
            .map_or(0, |number| i64::try_from(number).unwrap_or(i64::MAX));
        let params = [self.id.0.into(), after.into(), self.limit.into()];
        let rows = session.fetch(Statement::ListLogs, &params).await?;
        let items = rows
            .iter()
            .map(record::log_entry)
            .collect::<Result<Vec<_>, _>>()?;

        let next = match items.last() {
            Some(entry) if items.len() == self.limit => Some(entry.number),
            Some(_) | None => None,
        };
        Ok(LogPage { items, next })
    }
}

/// Refuses a task that the caller may not see. It reads only the owner: readers call often, and a
/// task's row may be large.
pub(crate) async fn check_owner(
    session: &mut dyn Session,
    access: &Access,
    id: TaskId,
) -> Result<(), SqlError> {
    let rows = session.fetch(Statement::FindOwner, &[id.0.into()]).await?;
    let owner = rows.first().map(|row| row.must_text(0)).transpose()?;
    let is_visible = owner.is_some_and(|owner| match access {
        Access::All => true,
        Access::Owner(own) => owner == *own,
    });
    if is_visible {
        Ok(())
    } else {
        Err(SqlError::Store(StoreError::NotFound))
    }
}
