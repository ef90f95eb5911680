//! Files of tasks.

use longhaul_domain::{TaskId, artifact::ArtifactRecord, ids::ArtifactId};
use serde::Serialize;
use utoipa::ToSchema;

use crate::time::Moment;

/// A file of a task.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Artifact)]
pub struct ArtifactView {
    #[schema(value_type = uuid::Uuid)]
    pub artifact_id: ArtifactId,
    #[schema(value_type = uuid::Uuid)]
    pub task_id: TaskId,
    /// The attempt that stored it.
    pub attempt: u32,
    pub file_name: String,
    pub content_type: String,
    pub bytes: u64,
    pub created_at: Moment,
    /// The file is deleted soon after this time.
    pub expires_at: Moment,
    /// When it was deleted.
    pub cleaned_at: Option<Moment>,
    /// A signed download URL that needs no other permission; `null` once the file has expired.
    pub url: Option<String>,
}

impl ArtifactView {
    pub fn new(record: ArtifactRecord, url: Option<String>) -> Self {
        Self {
            artifact_id: record.id,
            task_id: record.task_id,
            attempt: record.attempt,
            file_name: record.file_name,
            content_type: record.content_type,
            bytes: record.bytes,
            created_at: record.created_at.into(),
            expires_at: record.expires_at.into(),
            cleaned_at: record.cleaned_at.map(Moment),
            url,
        }
    }
}
