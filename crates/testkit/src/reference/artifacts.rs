//! Files of tasks: noted under the lease of the running attempt, visible once its result is
//! accepted, swept when due.

use longhaul_domain::{
    Invalid, Status, StoreError, TaskId, Timestamp,
    artifact::{ArtifactNote, ArtifactRecord, Swept, is_published},
    bounds,
    contract::store::{Access, Verdict},
    ids::ArtifactId,
    lifecycle::heartbeat,
};

use super::{
    attempts::{check_limit, verdict_of},
    state::State,
};

impl State {
    pub(super) fn note_artifact(
        &mut self,
        note: &ArtifactNote,
        now: Timestamp,
    ) -> Result<(Verdict, Option<ArtifactRecord>), StoreError> {
        note.check()?;
        let Some(task) = self.tasks.get(&note.lease.task_id) else {
            return Ok((Verdict::Missing, None));
        };
        if let Err(refusal) = heartbeat::decide(task, &note.lease) {
            return Ok((verdict_of(refusal, task), None));
        }

        let files = self.artifacts.values();
        let of_task = files.filter(|(record, _)| record.task_id == task.id);
        if of_task.count() >= bounds::ARTIFACTS {
            let allowed = format!("at most {} of one task", bounds::ARTIFACTS);
            return Err(Invalid::new("artifacts", "are too many", allowed).into());
        }

        let expires_at = now.plus_ms(note.keep_ms);
        let record = ArtifactRecord {
            id: note.id,
            task_id: task.id,
            attempt: note.lease.attempt,
            key: note.key.clone(),
            file_name: note.file_name.clone(),
            content_type: note.content_type.clone(),
            bytes: note.bytes,
            created_at: now,
            expires_at,
            cleaned_at: None,
            failures: 0,
        };

        // A repeated note finds the first record and changes nothing.
        let entry = self.artifacts.entry(note.id);
        let (stored, _) = entry.or_insert((record, Some(expires_at)));
        Ok((Verdict::Applied(Status::Running), Some(stored.clone())))
    }

    fn is_visible(&self, record: &ArtifactRecord) -> bool {
        let Some(task) = self.tasks.get(&record.task_id) else {
            return false;
        };
        let archived = self.attempts.get(&(record.task_id, record.attempt));
        let end = archived.map(|attempt| attempt.end);

        is_published(record.attempt, end, task.attempt, task.status)
    }

    pub(super) fn list_artifacts(
        &self,
        access: &Access,
        id: TaskId,
    ) -> Result<Vec<ArtifactRecord>, StoreError> {
        self.accessible(access, id)?;

        let records = self.artifacts.values().map(|(record, _)| record);
        let of_task = records.filter(|record| record.task_id == id);
        let visible = of_task.filter(|record| self.is_visible(record));
        let mut listed: Vec<ArtifactRecord> = visible.cloned().collect();
        listed.sort_by_key(|record| (record.created_at, record.id));

        Ok(listed)
    }

    pub(super) fn get_artifact(&self, id: ArtifactId) -> Result<ArtifactRecord, StoreError> {
        match self.artifacts.get(&id) {
            Some((record, _)) if self.is_visible(record) => Ok(record.clone()),
            _ => Err(StoreError::NotFound),
        }
    }

    pub(super) fn list_expired_artifacts(
        &self,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<ArtifactRecord>, StoreError> {
        check_limit(limit, bounds::MAINTENANCE_BATCH)?;

        let mut due = Vec::new();
        for (record, sweep_at) in self.artifacts.values() {
            if let Some(sweep_at) = sweep_at
                && *sweep_at <= now
            {
                due.push((*sweep_at, record));
            }
        }
        due.sort_by_key(|(sweep_at, record)| (*sweep_at, record.id));
        due.truncate(limit);

        Ok(due.into_iter().map(|(_, record)| record.clone()).collect())
    }

    pub(super) fn note_sweep(
        &mut self,
        swept: &[Swept],
        retry_ms: u64,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        bounds::check_batch("swept", swept.len(), bounds::MAINTENANCE_BATCH)?;
        bounds::check_duration_ms("retry", retry_ms)?;

        for one in swept {
            let has_task = self.tasks.contains_key(&one.task_id);
            if one.is_deleted && !has_task {
                self.artifacts.remove(&one.id);
            } else if let Some((record, sweep_at)) = self.artifacts.get_mut(&one.id) {
                if one.is_deleted {
                    record.cleaned_at = Some(now);
                    *sweep_at = None;
                } else if record.cleaned_at.is_none() {
                    record.failures += 1;
                    *sweep_at = Some(now.plus_ms(retry_ms));
                }
            }
        }

        Ok(())
    }

    /// Makes the files of a removed task due to be swept, and forgets those already deleted.
    pub(super) fn expire_artifacts(&mut self, task: TaskId, now: Timestamp) {
        self.artifacts
            .retain(|_, (record, _)| record.task_id != task || record.cleaned_at.is_none());

        for (record, sweep_at) in self.artifacts.values_mut() {
            if record.task_id == task {
                record.expires_at = record.expires_at.min(now);
                *sweep_at = Some(now);
            }
        }
    }
}
