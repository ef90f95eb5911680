//! The sweeper: files whose time is over are deleted, then their rows are marked; what fails is counted and tried again.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::{StoreError, artifact::Swept, contract::ArtifactStore};

use super::DutySettings;
use crate::{
    Engine,
    service::{Duty, Pass},
};

/// Files of one pass: each may be a request to another machine.
const BATCH: usize = 100;
/// When a file that could not be deleted is tried again.
const AGAIN: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub struct Sweeper {
    files: Arc<dyn ArtifactStore>,
    every: Duration,
}

impl Sweeper {
    pub fn new(settings: &DutySettings, files: Arc<dyn ArtifactStore>) -> Self {
        Self {
            files,
            every: settings.sweep_every,
        }
    }
}

#[async_trait]
impl Duty for Sweeper {
    fn name(&self) -> &'static str {
        "sweeper"
    }

    fn every(&self) -> Duration {
        self.every
    }

    async fn pass(&self, engine: &Engine) -> Result<Pass, StoreError> {
        let due = engine.store.list_expired_artifacts(BATCH).await?;
        if due.is_empty() {
            return Ok(Pass::Clear);
        }
        let mut swept = Vec::with_capacity(due.len());
        for one in &due {
            let removed = self.files.remove(&one.key).await;
            if let Err(error) = &removed {
                let (artifact, failures) = (one.id, one.failures + 1);
                tracing::warn!(%error, %artifact, failures, "an expired file could not be deleted");
            }
            swept.push(Swept {
                id: one.id,
                task_id: one.task_id,
                is_deleted: removed.is_ok(),
            });
        }
        let retry_ms = super::millis(AGAIN);
        engine.store.note_sweep(&swept, retry_ms).await?;
        Ok(if due.len() < BATCH {
            Pass::Clear
        } else {
            Pass::More
        })
    }
}
