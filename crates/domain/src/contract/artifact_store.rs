//! The artifact store: the content of files that tasks make.
//!
//! A key is made of task, attempt and a random id; the name of a file is only displayed. The caller
//! draws the id, so that the key can be noted before the file exists: a crash then leaves no
//! unknown file.

use async_trait::async_trait;

use crate::{
    artifact::FILE_NAME_BYTES,
    bounds::{ARTIFACT_BYTES, NAME_BYTES, check_text},
    error::Invalid,
    ids::{ArtifactId, TaskId},
};

/// A file to be stored.
#[derive(Debug, Clone, Copy)]
pub struct NewArtifact<'a> {
    /// Random, and never used before.
    pub id: ArtifactId,
    pub task_id: TaskId,
    pub attempt: u32,
    /// The name of the download. Never part of a path.
    pub file_name: &'a str,
    pub content_type: &'a str,
    pub bytes: &'a [u8],
}

impl NewArtifact<'_> {
    /// Its key: `{task}/{attempt}/{id}`.
    pub fn key(&self) -> String {
        format!("{}/{}/{}", self.task_id, self.attempt, self.id)
    }

    /// Refuses what cannot be stored, and names that cannot be part of a download's headers.
    pub fn check(&self) -> Result<(), Invalid> {
        check_text("fileName", self.file_name, FILE_NAME_BYTES)?;
        check_text("contentType", self.content_type, NAME_BYTES)?;
        if !self.content_type.is_ascii() {
            return Err(Invalid::new(
                "contentType",
                "is not ASCII",
                "a media type such as text/plain",
            ));
        }

        if self.bytes.len() > ARTIFACT_BYTES {
            let problem = format!("has {} bytes", self.bytes.len());
            return Err(Invalid::new(
                "bytes",
                problem,
                format!("up to {ARTIFACT_BYTES} bytes"),
            ));
        }

        Ok(())
    }
}

/// A stored file, as a task's result may contain it.
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
    Invalid(#[from] Invalid),
    #[error("the artifact store is unavailable: {0}")]
    Unavailable(String),
}

/// Files by key.
#[async_trait]
pub trait ArtifactStore: Send + Sync + std::fmt::Debug {
    /// Stores the file. When this returns, it is durable.
    async fn put(&self, artifact: NewArtifact<'_>) -> Result<Artifact, ArtifactError>;
    /// The file with its description.
    async fn get(&self, key: &str) -> Result<(Artifact, Vec<u8>), ArtifactError>;
    /// At most `length` bytes of the file from `offset` on; fewer only at its end.
    async fn read(&self, key: &str, offset: u64, length: u64) -> Result<Vec<u8>, ArtifactError>;
    /// Removes the file, or what a crash has left of it. A missing file is no error.
    async fn remove(&self, key: &str) -> Result<(), ArtifactError>;
    /// Removes all files of a task.
    async fn remove_all(&self, task: TaskId) -> Result<(), ArtifactError>;
}
