//! The sweeper: deletes expired files and marks their rows. A deletion that fails is counted and
//! tried again.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::{
    StoreError,
    artifact::{ArtifactRecord, Swept},
    contract::ArtifactStore,
};
use longhaul_engine::Engine;

use super::{
    MaintenanceSettings,
    job::{MaintenanceJob, Pass},
    millis,
};

/// Files of one pass: each may be a request to another host.
const BATCH: usize = 100;
/// When a file that could not be deleted is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(300);

/// See the module.
#[derive(Debug)]
pub struct Sweeper {
    files: Arc<dyn ArtifactStore>,
    every: Duration,
}

impl Sweeper {
    /// The job with the settings that concern it.
    pub fn new(settings: &MaintenanceSettings, files: Arc<dyn ArtifactStore>) -> Self {
        Self {
            files,
            every: settings.sweep_every,
        }
    }

    async fn delete(&self, file: &ArtifactRecord) -> Swept {
        let deleted = self.files.remove(&file.key).await;
        if let Err(error) = &deleted {
            let artifact = file.id;
            let failures = file.failures + 1;
            tracing::warn!(
                %error,
                %artifact,
                failures,
                "deleting an expired file failed; retrying later"
            );
        }

        Swept {
            id: file.id,
            task_id: file.task_id,
            is_deleted: deleted.is_ok(),
        }
    }
}

#[async_trait]
impl MaintenanceJob for Sweeper {
    fn name(&self) -> &'static str {
        "sweeper"
    }

    fn every(&self) -> Duration {
        self.every
    }

    async fn pass(&self, engine: &Engine) -> Result<Pass, StoreError> {
        let expired = engine.maintenance().list_expired_artifacts(BATCH).await?;
        if expired.is_empty() {
            return Ok(Pass::Clear);
        }

        let mut swept = Vec::with_capacity(expired.len());
        for file in &expired {
            swept.push(self.delete(file).await);
        }

        let retry_ms = millis(RETRY_AFTER);
        engine.maintenance().note_sweep(&swept, retry_ms).await?;
        Ok(Pass::after(expired.len(), BATCH))
    }
}
