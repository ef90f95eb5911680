//! An artifact folder that is created on first use. Most programs never write a file.

use std::path::PathBuf;

use async_trait::async_trait;
use longhaul_domain::{
    TaskId,
    contract::{
        ArtifactStore,
        artifact_store::{Artifact, ArtifactError, NewArtifact},
    },
};
use longhaul_transport::local::FolderArtifactStore;
use tokio::sync::OnceCell;

#[derive(Debug)]
pub(crate) struct LazyArtifacts {
    folder: PathBuf,
    store: OnceCell<FolderArtifactStore>,
}

impl LazyArtifacts {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            store: OnceCell::new(),
        }
    }

    async fn store(&self) -> Result<&FolderArtifactStore, ArtifactError> {
        self.store
            .get_or_try_init(|| async { FolderArtifactStore::open(&self.folder) })
            .await
    }
}

#[async_trait]
impl ArtifactStore for LazyArtifacts {
    async fn put(&self, artifact: NewArtifact<'_>) -> Result<Artifact, ArtifactError> {
        self.store().await?.put(artifact).await
    }

    async fn get(&self, key: &str) -> Result<(Artifact, Vec<u8>), ArtifactError> {
        self.store().await?.get(key).await
    }

    async fn read(&self, key: &str, offset: u64, length: u64) -> Result<Vec<u8>, ArtifactError> {
        self.store().await?.read(key, offset, length).await
    }

    async fn remove(&self, key: &str) -> Result<(), ArtifactError> {
        self.store().await?.remove(key).await
    }

    async fn remove_all(&self, task: TaskId) -> Result<(), ArtifactError> {
        self.store().await?.remove_all(task).await
    }
}
