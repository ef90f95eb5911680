//! Files of tasks: recorded under the lease of the running attempt, published when its result is
//! accepted, deleted when due.

use async_trait::async_trait;
use longhaul_domain::{
    AttemptEndKind, Invalid, Status, StoreError, TaskId,
    artifact::{ArtifactNote, ArtifactRecord, Swept, is_published},
    bounds,
    contract::store::{Access, Verdict},
    ids::ArtifactId,
};

use super::{
    check_limit,
    logs::check_owner,
    progress::{read_holders, verdict},
};
use crate::{
    catalog::Statement,
    effects::TransactionEffects,
    record::{self, hex_list},
    row::{Columns as _, SqlRow},
    session::{Mode, Operation, Session},
    sql_error::SqlError,
};

/// Records a file of the running attempt.
#[async_trait]
impl Operation for ArtifactNote {
    type Output = (Verdict, Option<ArtifactRecord>);

    fn check(&self) -> Result<(), Invalid> {
        Self::check(self)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<Self::Output, SqlError> {
        let ArtifactNote {
            lease,
            id,
            key,
            file_name,
            content_type,
            bytes,
            keep_ms,
        } = self;

        // The task stays locked until commit: the attempt cannot end in between.
        let held = read_holders(session, Statement::LockLeases, &[*lease]).await?;
        let told = verdict(&held, lease);
        if told != Verdict::Applied(Status::Running) {
            return Ok((told, None));
        }

        let task_id = lease.task_id.0;
        let counted = session
            .fetch(Statement::CountArtifacts, &[task_id.into()])
            .await?;
        let count = counted
            .first()
            .map(|row| row.must_int(0))
            .transpose()?
            .unwrap_or(0);
        if count >= bounds::ARTIFACTS as i64 {
            let allowed = format!("at most {} of one task", bounds::ARTIFACTS);
            return Err(SqlError::Store(
                Invalid::new("artifacts", "are too many", allowed).into(),
            ));
        }

        let micros = i64::try_from(keep_ms.saturating_mul(1_000)).unwrap_or(i64::MAX / 2);
        let params = [
            session.clock().into(),
            id.0.into(),
            task_id.into(),
            i64::from(lease.attempt).into(),
            key.into(),
            file_name.into(),
            content_type.into(),
            i64::try_from(*bytes).unwrap_or(i64::MAX).into(),
            micros.into(),
        ];

        session.execute(Statement::InsertArtifact, &params).await?;
        let rows = session
            .fetch(Statement::GetArtifact, &[id.0.into()])
            .await?;
        let record = rows.first().map(record::artifact).transpose()?;
        Ok((told, record))
    }
}

/// The record, if it is published.
fn published(row: &SqlRow) -> Result<Option<ArtifactRecord>, SqlError> {
    let record = record::artifact(row)?;

    let unknown = |text: &str| SqlError::internal(format!("unknown outcome {text:?}"));
    let archived = row
        .text(13)?
        .map(|text| AttemptEndKind::parse(&text).ok_or_else(|| unknown(&text)))
        .transpose()?;
    let task_attempt = u32::try_from(row.must_int(12)?).map_err(SqlError::internal)?;

    let is_seen = is_published(
        record.attempt,
        archived,
        task_attempt,
        record::status(row, 11)?,
    );
    Ok(is_seen.then_some(record))
}

/// The published files of a task that the caller may see.
#[derive(Debug)]
pub(crate) struct ListArtifacts {
    pub(crate) access: Access,
    pub(crate) id: TaskId,
}

#[async_trait]
impl Operation for ListArtifacts {
    type Output = Vec<ArtifactRecord>;
    const MODE: Mode = Mode::ReadOnly;

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<ArtifactRecord>, SqlError> {
        check_owner(session, &self.access, self.id).await?;
        let rows = session
            .fetch(Statement::ListArtifacts, &[self.id.0.into()])
            .await?;
        rows.iter()
            .filter_map(|row| published(row).transpose())
            .collect()
    }
}

/// A published file.
#[derive(Debug)]
pub(crate) struct GetArtifact {
    pub(crate) id: ArtifactId,
}

#[async_trait]
impl Operation for GetArtifact {
    type Output = ArtifactRecord;
    const MODE: Mode = Mode::ReadOnly;

    async fn run(&self, session: &mut dyn Session) -> Result<ArtifactRecord, SqlError> {
        let rows = session
            .fetch(Statement::GetArtifact, &[self.id.0.into()])
            .await?;
        let found = rows.first().map(published).transpose()?.flatten();
        found.ok_or(SqlError::Store(StoreError::NotFound))
    }
}

/// The files to delete now.
#[derive(Debug)]
pub(crate) struct ListExpiredArtifacts {
    pub(crate) limit: usize,
}

#[async_trait]
impl Operation for ListExpiredArtifacts {
    type Output = Vec<ArtifactRecord>;
    const MODE: Mode = Mode::ReadOnly;

    fn check(&self) -> Result<(), Invalid> {
        check_limit(self.limit, bounds::MAINTENANCE_BATCH)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<ArtifactRecord>, SqlError> {
        let params = [session.clock().into(), self.limit.into()];
        let rows = session
            .fetch(Statement::FindExpiredArtifacts, &params)
            .await?;
        rows.iter().map(record::artifact).collect()
    }
}

/// The outcome of deleting files.
#[derive(Debug)]
pub(crate) struct NoteSweep {
    pub(crate) swept: Vec<Swept>,
    pub(crate) retry_ms: u64,
}

#[async_trait]
impl Operation for NoteSweep {
    type Output = ();

    fn check(&self) -> Result<(), Invalid> {
        bounds::check_batch("swept", self.swept.len(), bounds::MAINTENANCE_BATCH)?;
        bounds::check_duration_ms("retry", self.retry_ms)
    }

    async fn run(&self, session: &mut dyn Session) -> Result<(), SqlError> {
        // Locked: a task pruned during the sweep would leave its file rows behind forever.
        let mut effects = TransactionEffects::default();
        effects
            .lock(session, self.swept.iter().map(|one| one.task_id))
            .await?;

        let list = |wanted: &dyn Fn(&Swept) -> bool| {
            let ids: Vec<TaskId> = self
                .swept
                .iter()
                .filter(|one| wanted(one))
                .map(|one| TaskId(one.id.0))
                .collect();
            (!ids.is_empty()).then(|| hex_list(ids))
        };

        let has_task = |one: &Swept| effects.get(one.task_id).is_some();
        let clock = session.clock();
        // A stored task keeps the rows of its deleted files.
        if let Some(ids) = list(&|one| one.is_deleted && has_task(one)) {
            session
                .execute(Statement::CleanArtifacts, &[clock.into(), (&ids).into()])
                .await?;
        }

        // Without its task, the row goes with the file.
        if let Some(ids) = list(&|one| one.is_deleted && !has_task(one)) {
            session
                .execute(Statement::DeleteArtifacts, &[(&ids).into()])
                .await?;
        }

        // A failed delete is tried again after a delay.
        if let Some(ids) = list(&|one| !one.is_deleted) {
            let micros = i64::try_from(self.retry_ms.saturating_mul(1_000)).unwrap_or(i64::MAX / 2);
            session
                .execute(
                    Statement::RetryArtifacts,
                    &[clock.into(), micros.into(), (&ids).into()],
                )
                .await?;
        }

        Ok(())
    }
}
