//! Files of tasks: noted under the lease of the running attempt, seen when its result was accepted, swept when due.

use async_trait::async_trait;
use longhaul_domain::{
    AttemptOutcome, Invalid, Status, StoreError, TaskId,
    artifact::{ArtifactNote, ArtifactRecord, Swept, is_published},
    bounds,
    contract::store::{Access, Verdict},
    ids::ArtifactId,
};

use super::{
    logs::check_owner,
    progress::{read_holders, verdict},
};
use crate::{
    catalog::Statement,
    failure::Failure,
    ledger::Ledger,
    record::{self, hex_list},
    row::{Columns as _, SqlRow},
    session::{Operation, Session},
};

/// Notes a file of the running attempt.
#[derive(Debug)]
pub(crate) struct NoteArtifact {
    pub(crate) note: ArtifactNote,
}

#[async_trait]
impl Operation for NoteArtifact {
    type Output = (Verdict, Option<ArtifactRecord>);

    async fn run(&self, session: &mut dyn Session) -> Result<Self::Output, Failure> {
        let ArtifactNote {
            lease,
            id,
            key,
            file_name,
            content_type,
            bytes,
            keep_ms,
        } = &self.note;
        // The task stays locked until the note is committed: no attempt can end in between.
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
            return Err(Failure::Store(
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

/// The record, if people see it.
fn published(row: &SqlRow) -> Result<Option<ArtifactRecord>, Failure> {
    let record = record::artifact(row)?;
    let unknown = |text: &str| Failure::internal(format!("unknown outcome {text:?}"));
    let archived = row
        .text(13)?
        .map(|text| AttemptOutcome::parse(&text).ok_or_else(|| unknown(&text)))
        .transpose()?;
    let task_attempt = u32::try_from(row.must_int(12)?).map_err(Failure::internal)?;
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

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<ArtifactRecord>, Failure> {
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

    async fn run(&self, session: &mut dyn Session) -> Result<ArtifactRecord, Failure> {
        let rows = session
            .fetch(Statement::GetArtifact, &[self.id.0.into()])
            .await?;
        let found = rows.first().map(published).transpose()?.flatten();
        found.ok_or(Failure::Store(StoreError::NotFound))
    }
}

/// What is to be deleted now.
#[derive(Debug)]
pub(crate) struct ListExpiredArtifacts {
    pub(crate) limit: usize,
}

#[async_trait]
impl Operation for ListExpiredArtifacts {
    type Output = Vec<ArtifactRecord>;

    async fn run(&self, session: &mut dyn Session) -> Result<Vec<ArtifactRecord>, Failure> {
        let params = [session.clock().into(), self.limit.into()];
        let rows = session
            .fetch(Statement::FindExpiredArtifacts, &params)
            .await?;
        rows.iter().map(record::artifact).collect()
    }
}

/// What became of files that were to be deleted.
#[derive(Debug)]
pub(crate) struct NoteSweep {
    pub(crate) swept: Vec<Swept>,
    pub(crate) retry_ms: u64,
}

#[async_trait]
impl Operation for NoteSweep {
    type Output = ();

    async fn run(&self, session: &mut dyn Session) -> Result<(), Failure> {
        // A task that is pruned meanwhile must not leave a row behind that nobody looks at again.
        let mut ledger = Ledger::default();
        ledger
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
        let has_task = |one: &Swept| ledger.get(one.task_id).is_some();
        let clock = session.clock();
        if let Some(ids) = list(&|one| one.is_deleted && has_task(one)) {
            session
                .execute(Statement::CleanArtifacts, &[clock.into(), (&ids).into()])
                .await?;
        }
        if let Some(ids) = list(&|one| one.is_deleted && !has_task(one)) {
            session
                .execute(Statement::DeleteArtifacts, &[(&ids).into()])
                .await?;
        }
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
