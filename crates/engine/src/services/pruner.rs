//! The pruner: ended tasks are deleted when they are old enough, after an export if one is wanted (R29).

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::{StoreError, Task, bounds::MAINTENANCE_BATCH, filter::Retention};

use super::{DutySettings, millis};
use crate::{
    Engine,
    service::{Duty, Pass},
};

/// Where tasks go before they are deleted.
#[async_trait]
pub trait Export: Send + Sync + std::fmt::Debug {
    /// Keeps the tasks durably, or says why not; then none of them is deleted. A task may come twice.
    async fn export(&self, tasks: &[Task]) -> Result<(), String>;
}

#[derive(Debug)]
pub struct Pruner {
    keep: Retention,
    export: Option<Arc<dyn Export>>,
}

impl Pruner {
    pub fn new(settings: &DutySettings, export: Option<Arc<dyn Export>>) -> Self {
        let keep = Retention {
            ended_ms: millis(settings.keep_ended),
            dead_letter_ms: millis(settings.keep_dead_letters),
        };
        Self { keep, export }
    }
}

#[async_trait]
impl Duty for Pruner {
    fn name(&self) -> &'static str {
        "pruner"
    }

    fn every(&self) -> Duration {
        Duration::from_secs(60)
    }

    async fn pass(&self, engine: &Engine) -> Result<Pass, StoreError> {
        let page = engine
            .store
            .list_prunable(&self.keep, None, MAINTENANCE_BATCH)
            .await?;
        if page.items.is_empty() {
            return Ok(Pass::Clear);
        }
        if let Some(export) = &self.export
            && let Err(cause) = export.export(&page.items).await
        {
            return Err(StoreError::Unavailable(format!(
                "the export before deletion failed: {cause}"
            )));
        }
        let ids: Vec<_> = page.items.iter().map(|task| task.id).collect();
        let removed = engine.store.prune_tasks(&self.keep, &ids).await?;
        tracing::info!(removed, "old tasks were deleted");
        Ok(if removed == 0 || page.next.is_none() {
            Pass::Clear
        } else {
            Pass::More
        })
    }
}
