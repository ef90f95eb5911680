//! Counts and statistics: appended with each change, folded now and then, read as one sum.

use async_trait::async_trait;
use longhaul_domain::statistics::{Tally, TallyFilter, TallySheet};

use crate::{
    catalog::Statement,
    failure::Failure,
    record,
    row::Columns as _,
    session::{Operation, Session},
};

/// Folds up to `limit` appended lines into their sums.
#[derive(Debug)]
pub(crate) struct FoldTallies {
    pub(crate) limit: usize,
}

#[async_trait]
impl Operation for FoldTallies {
    type Output = usize;

    async fn run(&self, session: &mut dyn Session) -> Result<usize, Failure> {
        let rows = session
            .fetch(Statement::FindTallyDeltas, &[self.limit.into()])
            .await?;
        if rows.is_empty() {
            return Ok(0);
        }
        let mut sheet = TallySheet::default();
        let mut found = Vec::with_capacity(rows.len());
        for row in &rows {
            found.push(row.must_str(0)?);
            sheet.add_all(&[record::tally(row, 1)?]);
        }
        // Sorted by key, so that two folds at once wait for each other instead of in a circle.
        let sums = serde_json::to_string(&sheet.into_tallies())?;
        let list = serde_json::to_string(&found)?;
        let deleted = session
            .execute(Statement::DeleteTallyDeltas, &[(&list).into()])
            .await?;
        if deleted != found.len() as u64 {
            return Err(Failure::Again(format!(
                "{deleted} of {} lines of counts were deleted",
                found.len()
            )));
        }
        session
            .execute(Statement::FoldTallies, &[(&sums).into()])
            .await?;
        Ok(found.len())
    }
}

/// Reads the sums of the present or of past hours.
#[derive(Debug)]
pub(crate) struct ReadTallies {
    pub(crate) filter: TallyFilter,
}

#[async_trait]
impl Operation for ReadTallies {
    type Output = Vec<Tally>;

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<Tally>, Failure> {
        let (from, to) = match self.filter.spans {
            None => (0, 1),
            Some((from, to)) => (from.as_micros().max(1), to.as_micros()),
        };
        let rows = session
            .fetch(Statement::ReadTallies, &[from.into(), to.into()])
            .await?;
        let mut sheet = TallySheet::default();
        for row in &rows {
            sheet.add_all(&[record::tally(row, 0)?]);
        }
        Ok(sheet.into_tallies())
    }
}
