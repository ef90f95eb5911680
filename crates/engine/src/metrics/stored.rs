//! How often the store is asked for what, how long it takes, and how often it fails.

use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use longhaul_domain::{
    StoreError,
    contract::store::{StoreObserver, StoreOperation},
};
use prometheus_client::metrics::{counter::Counter, histogram::Histogram};

use super::{
    Metrics,
    registry::{MetricFamily, MetricRegistry},
};

/// Seconds: from a tenth of a millisecond, a statement of the embedded store, to a minute, where
/// callers give up.
fn store_seconds() -> Histogram {
    Histogram::new([
        0.000_1, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 60.0,
    ])
}

#[derive(Debug)]
pub(crate) struct StoreMetrics {
    updates: MetricFamily<Counter, 1>,
    errors: MetricFamily<Counter, 1>,
    seconds: MetricFamily<Histogram, 1>,
    /// By the name of the operation: as many as the contract has.
    handles: RwLock<HashMap<&'static str, Handles>>,
}

#[derive(Debug, Clone)]
struct Handles {
    updates: Option<Counter>,
    errors: Counter,
    seconds: Histogram,
}

impl StoreMetrics {
    pub(crate) fn new(registry: &mut MetricRegistry) -> Self {
        Self {
            updates: registry.counters(
                "tasks_state_db_updates",
                ["operation"],
                "Operations that changed the store; one may be about many tasks",
            ),
            errors: registry.counters(
                "tasks_store_errors",
                ["operation"],
                "Operations that failed because the store was down or broken, not because they \
                 were refused",
            ),
            seconds: registry.histograms(
                "tasks_store_seconds",
                ["operation"],
                "How long the store took to answer",
                store_seconds,
            ),
            handles: RwLock::default(),
        }
    }

    fn handles_of(&self, operation: StoreOperation) -> Handles {
        let known = self
            .handles
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(operation.name)
            .cloned();

        known.unwrap_or_else(|| {
            let made = Handles {
                updates: operation
                    .is_update
                    .then(|| self.updates.get([operation.name])),
                errors: self.errors.get([operation.name]),
                seconds: self.seconds.get([operation.name]),
            };

            self.handles
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .entry(operation.name)
                .or_insert(made)
                .clone()
        })
    }
}

impl StoreObserver for Metrics {
    fn observed(&self, operation: StoreOperation, took: Duration, error: Option<&StoreError>) {
        let handles = self.store.handles_of(operation);
        handles.seconds.observe(took.as_secs_f64());

        match (error, &handles.updates) {
            (None, Some(updates)) => {
                updates.inc();
            }
            (Some(error), _) if is_failure(error) => {
                handles.errors.inc();
            }
            (None, None) | (Some(_), _) => {}
        }
    }
}

/// Whether it is the store that failed, and not the request.
const fn is_failure(error: &StoreError) -> bool {
    match error {
        StoreError::Unavailable(_) | StoreError::Internal(_) | StoreError::SchemaTooNew { .. } => {
            true
        }
        StoreError::Invalid(_)
        | StoreError::IdempotencyMismatch
        | StoreError::NotFound
        | StoreError::Refused(_)
        | StoreError::NodeLost => false,
    }
}
