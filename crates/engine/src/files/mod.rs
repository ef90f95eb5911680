//! Files that tasks make: where they are stored, for how long, and how they are handed out.

mod signer;

use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{
    Lease, StoreError, TaskRecord, Timestamp,
    artifact::{ArtifactNote, ArtifactRecord, Swept},
    bounds,
    contract::{
        ArtifactStore,
        artifact_store::{ArtifactError, NewArtifact},
        store::Verdict,
    },
    time::millis,
};
use tokio::time::Instant;

use crate::Engine;

pub use signer::{KEY_BYTES, UrlSigner};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// How long files are stored, by the tier of their task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLife {
    /// Also for tasks without a tier or with an unknown one.
    pub free: Duration,
    pub vip: Duration,
    pub enterprise: Duration,
}

impl Default for FileLife {
    fn default() -> Self {
        Self {
            free: DAY * 3,
            vip: DAY * 30,
            enterprise: DAY * 365,
        }
    }
}

impl FileLife {
    fn of(&self, tier: Option<&str>) -> Duration {
        match tier {
            Some("vip") => self.vip,
            Some("enterprise") => self.enterprise,
            Some(_) | None => self.free,
        }
    }
}

/// What a process needs to store files and to hand them out.
#[derive(Debug)]
pub struct Files {
    pub store: Arc<dyn ArtifactStore>,
    pub signer: UrlSigner,
    pub life: FileLife,
}

/// A file that is stored, and noted in the task store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFile {
    pub key: String,
    pub file_name: String,
    pub content_type: String,
    pub bytes: u64,
    /// Where it can be downloaded, below the server's own URL: from when the attempt's result is
    /// accepted until the file expires.
    pub url: String,
    pub expires_at: Timestamp,
}

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("another attempt has taken over")]
    Lost,
}

impl Files {
    /// Stores a file of a running attempt; an attempt that lost its lease stores nothing. The note
    /// comes before the file, so that the sweeper finds what a crash leaves behind. Files of an
    /// attempt that crashed are never published.
    pub async fn keep(
        &self,
        engine: &Engine,
        task: &TaskRecord,
        lease: Lease,
        new: NewArtifact<'_>,
    ) -> Result<StoredFile, FileError> {
        new.check().map_err(ArtifactError::Invalid)?;
        let started = Instant::now();
        let life = self.life.of(task.tier.as_deref());
        let record = note(engine, lease, &new, life).await?;

        let stored = match self.store.put(new).await {
            Ok(stored) => stored,
            Err(error) => {
                self.give_up(engine, &record).await;
                return Err(error.into());
            }
        };
        if started.elapsed() >= life {
            // The file expired before it was stored, and the sweeper may have missed it.
            self.give_up(engine, &record).await;
        }

        let url = self
            .signer
            .url(record.id, record.expires_at)
            .map_err(ArtifactError::Unavailable)?;
        Ok(StoredFile {
            key: stored.key,
            file_name: stored.file_name,
            content_type: stored.content_type,
            bytes: stored.bytes,
            url,
            expires_at: record.expires_at,
        })
    }

    /// Deletes a file that could not be stored, and marks its note. What fails here is left to the
    /// sweeper.
    async fn give_up(&self, engine: &Engine, record: &ArtifactRecord) {
        let is_deleted = self.store.remove(&record.key).await.is_ok();
        let swept = Swept {
            id: record.id,
            task_id: record.task_id,
            is_deleted,
        };

        if let Err(error) = engine.store.note_sweep(&[swept], 0).await {
            tracing::debug!(
                %error,
                artifact = %record.id,
                "marking a failed file failed; the sweeper deletes it later"
            );
        }
    }
}

/// Notes the file in the task store.
async fn note(
    engine: &Engine,
    lease: Lease,
    new: &NewArtifact<'_>,
    life: Duration,
) -> Result<ArtifactRecord, FileError> {
    let note = ArtifactNote {
        lease,
        id: new.id,
        key: new.key(),
        file_name: new.file_name.to_owned(),
        content_type: new.content_type.to_owned(),
        bytes: new.bytes.len() as u64,
        keep_ms: millis(life).min(bounds::DURATION_MS),
    };

    match engine.store.note_artifact(&note).await? {
        (Verdict::Applied(_) | Verdict::Repeated(_), Some(record)) => Ok(record),
        (Verdict::Applied(_) | Verdict::Repeated(_), None)
        | (Verdict::Stale(_) | Verdict::Missing, _) => Err(FileError::Lost),
    }
}
