//! The artifact store: files that tasks make (R41).
//!
//! Keys are made by the store from task, attempt and a random part; what a task calls its file is only shown.

use async_trait::async_trait;

use crate::ids::TaskId;

/// A file to be kept.
#[derive(Debug, Clone, Copy)]
pub struct NewArtifact<'a> {
    pub task_id: TaskId,
    pub attempt: u32,
    /// What people see when they download it. Never part of a path.
    pub file_name: &'a str,
    pub content_type: &'a str,
    pub bytes: &'a [u8],
}

/// A file that is kept, as the task's result may carry it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    pub key: String,
    pub file_name: String,
    pub content_type: String,
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArtifactError {
    #[error("there is no such artifact")]
    NotFound,
    #[error(transparent)]
    Invalid(#[from] crate::error::Invalid),
    #[error("the artifact store is unavailable: {0}")]
    Unavailable(String),
}

/// Files by key.
#[async_trait]
pub trait ArtifactStore: Send + Sync + std::fmt::Debug {
    /// Keeps the file. When this returns, it is durable.
    async fn put(&self, artifact: NewArtifact<'_>) -> Result<Artifact, ArtifactError>;
    /// The file and what is known of it.
    async fn get(&self, key: &str) -> Result<(Artifact, Vec<u8>), ArtifactError>;
    /// At most `length` bytes of the file from `offset` on; fewer only where it ends.
    async fn read(&self, key: &str, offset: u64, length: u64) -> Result<Vec<u8>, ArtifactError>;
    /// Removes the file; one that is gone already is no error.
    async fn remove(&self, key: &str) -> Result<(), ArtifactError>;
    /// Removes all files of a task.
    async fn remove_all(&self, task: TaskId) -> Result<(), ArtifactError>;
}
