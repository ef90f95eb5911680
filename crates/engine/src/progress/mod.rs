//! The progress of tasks, before, on its way to, and in the store.
//!
//! A handler reports as often as it likes. [`live`] has the newest report of each task that runs in
//! this process, [`publish`] copies it into a progress cache that other processes read,
//! [`write_behind`] decides when it is written to the store, and [`collect`] does the same for
//! what remote workers report over the broker.

mod collect;
mod live;
mod publish;
mod write_behind;

use longhaul_domain::{
    Json, Lease, StoreError, TaskId, TaskRecord,
    contract::{progress_cache::LiveProgress, store::Verdict},
    event::{EventKind, TaskEvent},
};

use crate::Engine;

pub use collect::ProgressCollection;
pub(crate) use live::LiveTasks;
pub(crate) use publish::CacheWriter;
pub use write_behind::WriteBehind;

impl Engine {
    /// Notes the newest progress of a running task and publishes it at once. It is written to the
    /// store later, by [`Self::save_progress`].
    pub fn note_progress(&self, task: &TaskRecord, progress: serde_json::Value) {
        let (sequence, writes) = self.live.report(task.id, task.attempt, progress.clone());
        if let Some(writer) = &self.cache_writer {
            let report = LiveProgress {
                attempt: task.attempt,
                sequence,
                progress: progress.clone(),
            };
            writer.report(task.id, report);
        }

        if self.count_event(EventKind::Progress, task.id, &task.owner) {
            self.bus.publish(TaskEvent {
                version: task.version + writes,
                ..TaskEvent::progress(task, sequence, progress)
            });
        }
    }

    /// Writes the progress of tasks that run here to the store.
    pub async fn save_progress(
        &self,
        reports: &[(Lease, Json)],
    ) -> Result<Vec<Verdict>, StoreError> {
        for (lease, _) in reports {
            self.live.write_sent_if_running(lease);
        }

        let verdicts = self.store.save_progress(reports).await?;
        for ((lease, _), verdict) in reports.iter().zip(&verdicts) {
            self.live.write_answered(lease, *verdict);
        }

        Ok(verdicts)
    }

    /// Saves what the next attempt of a task that runs here starts from.
    pub async fn save_checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Json,
    ) -> Result<Verdict, StoreError> {
        self.live.write_sent(lease);
        let verdict = self.store.save_checkpoint(lease, checkpoint).await?;
        self.live.write_answered(lease, verdict);
        Ok(verdict)
    }

    /// The newest progress of a task that runs here.
    pub fn progress_here(&self, id: TaskId) -> Option<serde_json::Value> {
        self.live.progress(id)
    }

    /// Forgets the progress of an attempt that no longer runs here. Reports of a later attempt
    /// stay.
    pub fn forget_progress(&self, lease: &Lease) {
        let has_reported = self.live.forget(lease);
        if let Some(writer) = &self.cache_writer
            && has_reported
        {
            writer.forget(lease.task_id);
        }
    }
}
