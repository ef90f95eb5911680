//! What a running attempt writes, and how it reports its end.

use async_trait::async_trait;

use crate::{
    artifact::{ArtifactNote, ArtifactRecord},
    error::StoreError,
    json::Json,
    log::LogLine,
    task::{Lease, Status, TaskError},
    time::Timestamp,
};

/// How an attempt ended, as its worker reports it.
#[derive(Debug, Clone, PartialEq)]
pub enum AttemptEnd {
    Completed {
        result: Option<Json>,
        result_url: Option<String>,
    },
    /// Without `retry_in_ms` the failure is fatal.
    Failed {
        failure: Failure,
        retry_in_ms: Option<u64>,
    },
    Snoozed {
        reason: Option<Failure>,
        delay_ms: u64,
    },
    HandedBack,
    Cancelled,
}

/// An error as a worker reports it. The store adds time and attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub class: String,
    pub message: String,
    pub detail: Option<String>,
}

impl Failure {
    pub fn at(&self, now: Timestamp, attempt: u32) -> TaskError {
        TaskError::new(
            &self.class,
            &self.message,
            self.detail.as_deref(),
            now,
            attempt,
        )
    }
}

/// A worker's report on one attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct AttemptReport {
    pub lease: Lease,
    pub end: AttemptEnd,
}

/// The result of a fenced write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It counts; the task is now at this status.
    Applied(Status),
    /// It was recorded before, by the same attempt.
    Repeated(Status),
    /// The lease is no longer valid; nothing was written. The task is at this status.
    Stale(Status),
    /// There is no such task.
    Missing,
}

impl Verdict {
    /// Whether the write counts, now or before.
    pub const fn is_accepted(self) -> bool {
        matches!(self, Self::Applied(_) | Self::Repeated(_))
    }
}

/// What running attempts write beside their end. None of it changes a task's status.
#[async_trait]
pub trait AttemptData: Send + Sync {
    async fn save_progress(&self, reports: &[(Lease, Json)]) -> Result<Vec<Verdict>, StoreError>;

    /// Saves what the next attempt of the task starts from.
    async fn save_checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Json,
    ) -> Result<Verdict, StoreError>;

    /// Appends log lines in the order given, at most
    /// [`bounds::LOG_BATCH`](crate::bounds::LOG_BATCH). A message that a store cannot keep is cut
    /// or repaired, never refused. The tasks themselves do not change: a line is no sign of life.
    /// Of each task the last [`bounds::LOG_LINES`](crate::bounds::LOG_LINES) lines stay, and for a
    /// while up to [`bounds::LOG_SLACK`](crate::bounds::LOG_SLACK) older ones. Unlike other writes,
    /// lines that are written again because their outcome is unknown may be there twice.
    async fn append_logs(&self, lines: &[LogLine]) -> Result<Vec<Verdict>, StoreError>;

    /// Notes a file that the running attempt has put into the artifact store; `None` unless the
    /// verdict accepts it. Of each task at most [`bounds::ARTIFACTS`](crate::bounds::ARTIFACTS)
    /// files are noted.
    async fn note_artifact(
        &self,
        note: &ArtifactNote,
    ) -> Result<(Verdict, Option<ArtifactRecord>), StoreError>;
}
