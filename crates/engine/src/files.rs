//! Files that tasks make: where they are kept, for how long, and how they are handed out (R41).

use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{
    Lease, StoreError, Task, Timestamp,
    artifact::{ArtifactNote, ArtifactRecord, Swept},
    bounds,
    contract::{
        ArtifactStore,
        artifact_store::{Artifact, ArtifactError, NewArtifact},
        store::Verdict,
    },
};
use tokio::time::Instant;

use crate::{Engine, signer::UrlSigner};

const DAY: Duration = Duration::from_secs(24 * 3_600);

/// How long files are kept, by the tier of their task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileLife {
    /// Also of tasks without a tier, and of tiers that nobody knows.
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

/// What a process needs to keep files and to hand them out.
#[derive(Debug)]
pub struct Files {
    pub store: Arc<dyn ArtifactStore>,
    pub signer: UrlSigner,
    pub life: FileLife,
}

/// A file that is kept, and noted in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptFile {
    /// Where it is kept.
    pub key: String,
    pub file_name: String,
    pub content_type: String,
    pub bytes: u64,
    /// Where it can be downloaded once the attempt's result is accepted, until it expires: below the server's own URL.
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
    /// Keeps a file of a running attempt. One that lost its lease keeps nothing. The note comes first: what a crash leaves
    /// of a file is swept by it, and nobody sees a file of an attempt that crashed.
    pub async fn keep(
        &self,
        engine: &Engine,
        task: &Task,
        lease: Lease,
        new: NewArtifact<'_>,
    ) -> Result<KeptFile, FileError> {
        new.check().map_err(ArtifactError::Invalid)?;
        let began = Instant::now();
        let record = self.note(engine, task, lease, &new).await?;
        let Artifact {
            key,
            file_name,
            content_type,
            bytes,
        } = match self.store.put(new).await {
            Ok(kept) => kept,
            Err(error) => {
                self.give_up(engine, &record).await;
                return Err(error.into());
            }
        };
        if began.elapsed() >= self.life.of(task.tier.as_deref()) {
            // Its time was over before it was there, and the sweeper may have come in between.
            self.give_up(engine, &record).await;
        }
        let url = self
            .signer
            .url(record.id, record.expires_at)
            .map_err(ArtifactError::Unavailable)?;
        Ok(KeptFile {
            key,
            file_name,
            content_type,
            bytes,
            url,
            expires_at: record.expires_at,
        })
    }

    async fn note(
        &self,
        engine: &Engine,
        task: &Task,
        lease: Lease,
        new: &NewArtifact<'_>,
    ) -> Result<ArtifactRecord, FileError> {
        let keep_ms = u64::try_from(self.life.of(task.tier.as_deref()).as_millis())
            .unwrap_or(bounds::DURATION_MS);
        let note = ArtifactNote {
            lease,
            id: new.id,
            key: new.key(),
            file_name: new.file_name.to_owned(),
            content_type: new.content_type.to_owned(),
            bytes: new.bytes.len() as u64,
            keep_ms: keep_ms.min(bounds::DURATION_MS),
        };
        match engine.store.note_artifact(&note).await? {
            (Verdict::Applied(_) | Verdict::Repeated(_), Some(record)) => Ok(record),
            (
                Verdict::Applied(_) | Verdict::Repeated(_) | Verdict::Stale(_) | Verdict::Missing,
                _,
            ) => Err(FileError::Lost),
        }
    }

    /// The file could not be kept: whoever finds its note is told that it is gone. What cannot be done now the sweeper
    /// does.
    async fn give_up(&self, engine: &Engine, record: &ArtifactRecord) {
        let is_deleted = self.store.remove(&record.key).await.is_ok();
        let swept = Swept {
            id: record.id,
            task_id: record.task_id,
            is_deleted,
        };
        if let Err(error) = engine.store.note_sweep(&[swept], 0).await {
            tracing::debug!(%error, artifact = %record.id, "a file that could not be kept is left to the sweeper");
        }
    }
}
