//! Artifacts in memory: a test leaves no files behind.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use longhaul_domain::{
    TaskId,
    contract::{
        ArtifactStore,
        artifact_store::{Artifact, ArtifactError, NewArtifact},
    },
};
use longhaul_transport::artifact::ArtifactKey;

/// A file and its task, by key.
type Files = BTreeMap<String, (TaskId, Artifact, Vec<u8>)>;

#[derive(Debug, Default)]
pub(super) struct MemoryArtifacts {
    files: Mutex<Files>,
}

impl MemoryArtifacts {
    fn files(&self) -> MutexGuard<'_, Files> {
        // A panic elsewhere must not hide the files.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl ArtifactStore for MemoryArtifacts {
    async fn put(&self, artifact: NewArtifact<'_>) -> Result<Artifact, ArtifactError> {
        artifact.check()?;
        let kept = Artifact {
            key: artifact.key(),
            file_name: artifact.file_name.to_owned(),
            content_type: artifact.content_type.to_owned(),
            bytes: artifact.bytes.len() as u64,
        };

        let file = (artifact.task_id, kept.clone(), artifact.bytes.to_vec());
        self.files().insert(kept.key.clone(), file);
        Ok(kept)
    }

    async fn get(&self, key: &str) -> Result<(Artifact, Vec<u8>), ArtifactError> {
        let _: ArtifactKey = key.parse()?;
        let files = self.files();
        let (_, artifact, bytes) = files.get(key).ok_or(ArtifactError::NotFound)?;
        Ok((artifact.clone(), bytes.clone()))
    }

    async fn read(&self, key: &str, offset: u64, length: u64) -> Result<Vec<u8>, ArtifactError> {
        let (_, bytes) = self.get(key).await?;
        let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
        Ok(bytes[place(offset)..place(offset.saturating_add(length))].to_vec())
    }

    async fn remove(&self, key: &str) -> Result<(), ArtifactError> {
        let _: ArtifactKey = key.parse()?;
        self.files().remove(key);
        Ok(())
    }

    async fn remove_all(&self, task: TaskId) -> Result<(), ArtifactError> {
        self.files().retain(|_, (of, _, _)| *of != task);
        Ok(())
    }
}
