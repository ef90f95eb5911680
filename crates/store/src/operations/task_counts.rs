//! Counts and statistics: appended with each change, folded periodically, read as one sum.

use async_trait::async_trait;
use longhaul_domain::{
    Invalid, bounds,
    statistics::{CountFilter, CountSheet, TaskCount},
};

use super::check_limit;
use crate::{
    catalog::Statement,
    record,
    row::Columns as _,
    session::{Mode, Operation, Session},
    sql_error::SqlError,
};

/// Folds up to `limit` appended rows into their sums.
#[derive(Debug)]
pub(crate) struct CompactCounts {
    pub(crate) limit: usize,
}

#[async_trait]
impl Operation for CompactCounts {
    type Output = usize;

    fn check(&self) -> Result<(), Invalid> {
        check_limit(self.limit, bounds::MAINTENANCE_BATCH)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<usize, SqlError> {
        let rows = session
            .fetch(Statement::FindCountDeltas, &[self.limit.into()])
            .await?;
        if rows.is_empty() {
            return Ok(0);
        }

        let mut sheet = CountSheet::default();
        let mut found = Vec::with_capacity(rows.len());
        for row in &rows {
            found.push(row.must_str(0)?);
            sheet.add_all(&[record::task_count(row, 1)?]);
        }

        // Sorted by key, so that concurrent folds cannot deadlock.
        let sums = serde_json::to_string(&sheet.into_task_counts())?;
        let list = serde_json::to_string(&found)?;
        let deleted = session
            .execute(Statement::DeleteCountDeltas, &[(&list).into()])
            .await?;
        if deleted != found.len() as u64 {
            return Err(SqlError::LostRace(format!(
                "{deleted} of {} lines of counts were deleted",
                found.len()
            )));
        }

        session
            .execute(Statement::CompactCounts, &[(&sums).into()])
            .await?;
        Ok(found.len())
    }
}

/// Reads the sums of the present or of past hours.
#[async_trait]
impl Operation for CountFilter {
    type Output = Vec<TaskCount>;
    const MODE: Mode = Mode::ReadOnly;

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<TaskCount>, SqlError> {
        let (from, to) = match self.spans {
            None => (0, 1),
            Some((from, to)) => (from.as_micros().max(1), to.as_micros()),
        };
        let rows = session
            .fetch(Statement::ReadTaskCounts, &[from.into(), to.into()])
            .await?;
        let mut sheet = CountSheet::default();

        for row in &rows {
            sheet.add_all(&[record::task_count(row, 0)?]);
        }

        Ok(sheet.into_task_counts())
    }
}
