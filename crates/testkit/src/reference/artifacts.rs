//! Files of tasks: noted under the lease of the running attempt, seen when its result was accepted, swept when due.

use longhaul_domain::{
    Invalid, Status, StoreError, TaskId, Timestamp,
    artifact::{ArtifactNote, ArtifactRecord, Swept, is_published},
    bounds,
    contract::store::{Access, Verdict},
    ids::ArtifactId,
    lifecycle::heartbeat,
};

use super::{
    state::State,
    working::{check_limit, verdict_of},
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
        if self
            .artifacts
            .values()
            .filter(|(one, _)| one.task_id == task.id)
            .count()
            >= bounds::ARTIFACTS
        {
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
        let kept = self
            .artifacts
            .entry(note.id)
            .or_insert((record, Some(expires_at)));
        Ok((Verdict::Applied(Status::Running), Some(kept.0.clone())))
    }

    fn is_seen(&self, record: &ArtifactRecord) -> bool {
        self.tasks.get(&record.task_id).is_some_and(|task| {
            let archived = self
                .attempts
                .get(&(record.task_id, record.attempt))
                .map(|attempt| attempt.outcome);
            is_published(record.attempt, archived, task.attempt, task.status)
        })
    }

    pub(super) fn list_artifacts(
        &self,
        access: &Access,
        id: TaskId,
    ) -> Result<Vec<ArtifactRecord>, StoreError> {
        self.accessible(access, id)?;
        let of_task = self
            .artifacts
            .values()
            .map(|(record, _)| record)
            .filter(|record| record.task_id == id);
        let mut seen: Vec<ArtifactRecord> = of_task
            .filter(|record| self.is_seen(record))
            .cloned()
            .collect();
        seen.sort_by_key(|record| (record.created_at, record.id));
        Ok(seen)
    }

    pub(super) fn get_artifact(&self, id: ArtifactId) -> Result<ArtifactRecord, StoreError> {
        let found = self
            .artifacts
            .get(&id)
            .map(|(record, _)| record)
            .filter(|record| self.is_seen(record));
        found.cloned().ok_or(StoreError::NotFound)
    }

    pub(super) fn list_expired_artifacts(
        &self,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<ArtifactRecord>, StoreError> {
        check_limit(limit, bounds::MAINTENANCE_BATCH)?;
        let due = self
            .artifacts
            .values()
            .filter_map(|(record, at)| at.filter(|at| *at <= now).map(|at| (at, record)));
        let mut due: Vec<_> = due.collect();
        due.sort_by_key(|(at, record)| (*at, record.id));
        Ok(due
            .into_iter()
            .take(limit)
            .map(|(_, record)| record.clone())
            .collect())
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
            } else if let Some((record, at)) = self.artifacts.get_mut(&one.id) {
                if one.is_deleted {
                    (record.cleaned_at, *at) = (Some(now), None);
                } else if record.cleaned_at.is_none() {
                    (record.failures, *at) = (record.failures + 1, Some(now.plus_ms(retry_ms)));
                }
            }
        }
        Ok(())
    }

    /// The task is gone: its files are to be swept now, and those that are deleted are forgotten.
    pub(super) fn expire_artifacts(&mut self, task: TaskId, now: Timestamp) {
        self.artifacts
            .retain(|_, (record, _)| record.task_id != task || record.cleaned_at.is_none());
        for (record, at) in self
            .artifacts
            .values_mut()
            .filter(|(record, _)| record.task_id == task)
        {
            (record.expires_at, *at) = (record.expires_at.min(now), Some(now));
        }
    }
}
