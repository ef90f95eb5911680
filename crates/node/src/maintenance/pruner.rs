//! The pruner: deletes ended tasks that are old enough, after an export where one is configured.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::{StoreError, TaskRecord, bounds::MAINTENANCE_BATCH, filter::Retention};

use super::{
    MaintenanceSettings,
    job::{MaintenanceJob, Pass},
    millis,
};
use longhaul_engine::Engine;

/// Where tasks go before they are deleted.
#[async_trait]
pub trait Export: Send + Sync + std::fmt::Debug {
    /// Stores the tasks durably. On an error none of them is deleted. A task may come twice.
    async fn export(&self, tasks: &[TaskRecord]) -> Result<(), String>;
}

/// See the module.
#[derive(Debug)]
pub struct Pruner {
    retention: Retention,
    export: Option<Arc<dyn Export>>,
}

impl Pruner {
    /// The job with the settings that concern it.
    pub fn new(settings: &MaintenanceSettings, export: Option<Arc<dyn Export>>) -> Self {
        let retention = Retention {
            ended_ms: millis(settings.keep_ended),
            dead_letter_ms: millis(settings.keep_dead_letters),
        };
        Self { retention, export }
    }
}

#[async_trait]
impl MaintenanceJob for Pruner {
    fn name(&self) -> &'static str {
        "pruner"
    }

    fn every(&self) -> Duration {
        Duration::from_secs(60)
    }

    async fn pass(&self, engine: &Engine) -> Result<Pass, StoreError> {
        let page = engine
            .maintenance()
            .list_prunable(&self.retention, None, MAINTENANCE_BATCH)
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
        let removed = engine
            .maintenance()
            .prune_tasks(&self.retention, &ids)
            .await?;
        tracing::info!(rows = removed, "pruner deleted old tasks");

        Ok(if removed == 0 || page.next.is_none() {
            Pass::Clear
        } else {
            Pass::More
        })
    }
}
