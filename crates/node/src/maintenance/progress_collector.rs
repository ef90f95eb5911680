//! The progress collector: runs [`ProgressCollection`] on one node at a time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::StoreError;
use longhaul_engine::{Engine, progress::ProgressCollection};
use tokio::{sync::Mutex, time::Instant};

use super::job::{MaintenanceJob, Pass};

/// How long one pass listens. The lease of the job is renewed between two passes.
const PASS: Duration = Duration::from_millis(500);
/// How often a node tries to become the collector.
const EVERY: Duration = Duration::from_secs(1);
/// The rest of the node that collects: none to speak of.
const AT_ONCE: Duration = Duration::from_millis(1);

/// See the module. Without a broker it does nothing.
#[derive(Debug, Default)]
pub struct ProgressCollector {
    collection: Mutex<ProgressCollection>,
    /// Whether the last round listened: only the node that has the job does.
    has_listened: AtomicBool,
}

#[async_trait]
impl MaintenanceJob for ProgressCollector {
    fn name(&self) -> &'static str {
        "progress_collector"
    }

    fn every(&self) -> Duration {
        EVERY
    }

    /// A node that did not listen does not have the job. It drops its inbox, so that it takes no
    /// reports from the node that has it.
    fn rest(&self) -> Duration {
        if self.has_listened.swap(false, Ordering::Relaxed) {
            return AT_ONCE;
        }

        if let Ok(mut collection) = self.collection.try_lock() {
            *collection = ProgressCollection::default();
        }
        EVERY
    }

    async fn pass(&self, engine: &Engine) -> Result<Pass, StoreError> {
        let Some(broker) = engine.broker() else {
            return Ok(Pass::Clear);
        };

        // Held during the pass. `rest`, which also takes it, runs between two passes.
        let mut collection = self.collection.lock().await;
        let until = Instant::now() + PASS;
        collection.run_until(until, engine, &**broker).await?;

        self.has_listened.store(true, Ordering::Relaxed);
        Ok(Pass::More)
    }
}
