//! The files that tasks made, as the store knows them. Their content is in the artifact store.

use serde::Serialize;

use crate::{
    attempt::AttemptEndKind,
    bounds,
    error::Invalid,
    ids::{ArtifactId, TaskId},
    task::{Lease, Status},
    time::Timestamp,
};

/// The length of a file's name in bytes: what file systems accept.
pub const FILE_NAME_BYTES: usize = 255;

/// A file that the attempt with this lease puts into the artifact store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArtifactNote {
    pub lease: Lease,
    /// Random, made by the process that stores the file.
    pub id: ArtifactId,
    pub key: String,
    pub file_name: String,
    pub content_type: String,
    pub bytes: u64,
    /// How long the file is stored, in milliseconds.
    pub keep_ms: u64,
}

impl ArtifactNote {
    pub fn check(&self) -> Result<(), Invalid> {
        bounds::check_text("key", &self.key, bounds::NAME_BYTES)?;
        bounds::check_text("fileName", &self.file_name, FILE_NAME_BYTES)?;
        bounds::check_text("contentType", &self.content_type, bounds::NAME_BYTES)?;
        bounds::check_duration_ms("keep", self.keep_ms)?;

        if self.bytes > bounds::ARTIFACT_BYTES as u64 {
            let problem = format!("is {}", self.bytes);
            return Err(Invalid::new(
                "bytes",
                problem,
                format!("up to {} bytes", bounds::ARTIFACT_BYTES),
            ));
        }

        Ok(())
    }
}

/// A noted file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactRecord {
    pub id: ArtifactId,
    pub task_id: TaskId,
    pub attempt: u32,
    pub key: String,
    pub file_name: String,
    pub content_type: String,
    pub bytes: u64,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
    /// When the file was deleted.
    pub cleaned_at: Option<Timestamp>,
    /// How often its deletion failed.
    pub failures: u32,
}

/// The outcome of a file's deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Swept {
    pub id: ArtifactId,
    pub task_id: TaskId,
    pub is_deleted: bool,
}

/// Whether a file is visible: only files of an attempt whose result was accepted are. `archived` is
/// how the attempt ended, if the task has moved on from it; otherwise the task's own row has the
/// end.
pub fn is_published(
    attempt: u32,
    archived: Option<AttemptEndKind>,
    task_attempt: u32,
    status: Status,
) -> bool {
    match archived {
        Some(end) => end == AttemptEndKind::Completed,
        None => {
            let has_result = [
                Status::Completed,
                Status::CompletedWithErrors,
                Status::Waiting,
            ]
            .contains(&status);
            attempt == task_attempt && has_result
        }
    }
}
