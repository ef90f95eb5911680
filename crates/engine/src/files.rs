//! Files that tasks make: where they are kept, for how long, and how they are handed out (R41).

use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{
    Lease, StoreError, Task, Timestamp,
    artifact::{ArtifactNote, ArtifactRecord},
    bounds,
    contract::{
        ArtifactStore,
        artifact_store::{Artifact, ArtifactError, NewArtifact},
        store::Verdict,
    },
    ids::ArtifactId,
};

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
        Self { free: DAY * 3, vip: DAY * 30, enterprise: DAY * 365 }
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
    /// Keeps a file of a running attempt. One that lost its lease keeps nothing.
    pub async fn keep(
        &self,
        engine: &Engine,
        task: &Task,
        lease: Lease,
        new: NewArtifact<'_>,
    ) -> Result<KeptFile, FileError> {
        let Artifact { key, file_name, content_type, bytes } = self.store.put(new).await?;
        let noted = self.note(engine, task, lease, (&key, &file_name, &content_type, bytes)).await;
        let record = match noted {
            Ok(record) => record,
            Err(error) => {
                // Nobody will ask for it. What cannot be removed now goes with the task's other files.
                let _ = self.store.remove(&key).await;
                return Err(error);
            }
        };
        let url = self.signer.url(record.id, record.expires_at).map_err(ArtifactError::Unavailable)?;
        Ok(KeptFile { key, file_name, content_type, bytes, url, expires_at: record.expires_at })
    }

    async fn note(
        &self,
        engine: &Engine,
        task: &Task,
        lease: Lease,
        (key, file_name, content_type, bytes): (&str, &str, &str, u64),
    ) -> Result<ArtifactRecord, FileError> {
        let random = key.rsplit('/').next().and_then(|part| part.parse().ok());
        let no_key = || ArtifactError::Unavailable(format!("{key:?} does not end with a random part"));
        let id = ArtifactId(random.ok_or_else(no_key)?);
        let keep_ms = u64::try_from(self.life.of(task.tier.as_deref()).as_millis()).unwrap_or(bounds::DURATION_MS);
        let note = ArtifactNote {
            lease,
            id,
            key: key.to_owned(),
            file_name: file_name.to_owned(),
            content_type: content_type.to_owned(),
            bytes,
            keep_ms: keep_ms.min(bounds::DURATION_MS),
        };
        match engine.store.note_artifact(&note).await? {
            (Verdict::Applied(_) | Verdict::Repeated(_), Some(record)) => Ok(record),
            (Verdict::Applied(_) | Verdict::Repeated(_) | Verdict::Stale(_) | Verdict::Missing, _) => {
                Err(FileError::Lost)
            }
        }
    }
}
