//! Background work that one node does for all, on the skeleton of [`job`].

pub mod job;

mod count_compactor;
mod dispatcher;
mod expirer;
mod key_pruner;
mod priority_aging;
mod progress_collector;
mod pruner;
mod relay;
mod rescuer;
mod sweeper;

use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{bounds, contract::ArtifactStore};

pub use count_compactor::CountCompactor;
pub use dispatcher::Dispatcher;
pub use expirer::Expirer;
pub use key_pruner::KeyPruner;
pub use priority_aging::PriorityAging;
pub use progress_collector::ProgressCollector;
pub use pruner::{Export, Pruner};
pub use relay::Relay;
pub use rescuer::Rescuer;
pub use sweeper::Sweeper;

use job::MaintenanceJob;

/// The operator's settings of the maintenance jobs.
#[derive(Debug, Clone)]
pub struct MaintenanceSettings {
    /// A node without a heartbeat for this long is dead, and its tasks go to others.
    pub lease: Duration,
    /// How often dead nodes are looked for.
    pub rescue_every: Duration,
    /// Deaths of its node after which a task is quarantined.
    pub max_crashes: u32,
    /// An attempt that changes nothing for this long is failed, although its node lives.
    pub silent: Duration,
    /// How long past its timeout an attempt's own node has to end it.
    pub timeout_grace: Duration,
    /// How long ended tasks are kept.
    pub keep_ended: Duration,
    /// How long `FAILED` and `DEAD_LETTER` tasks are kept.
    pub keep_dead_letters: Duration,
    /// How often expired files are looked for.
    pub sweep_every: Duration,
    /// How long a task waits before it is started regardless of its priority. Zero: never.
    pub starve_after: Duration,
    /// How long tasks of a dead node are reserved for nodes of its host. Zero: not at all.
    pub host_affinity: Duration,
}

const DAY: Duration = Duration::from_secs(24 * 3_600);

impl Default for MaintenanceSettings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            rescue_every: Duration::from_secs(2),
            max_crashes: bounds::DEFAULT_MAX_CRASHES,
            silent: Duration::from_secs(2 * 3_600),
            timeout_grace: Duration::from_secs(10),
            keep_ended: DAY * 7,
            keep_dead_letters: DAY * 30,
            sweep_every: Duration::from_secs(60),
            starve_after: Duration::from_secs(600),
            host_affinity: Duration::ZERO,
        }
    }
}

/// The jobs of every deployment. With `export`, tasks are exported before they are deleted.
pub fn all(
    settings: &MaintenanceSettings,
    export: Option<Arc<dyn Export>>,
    files: &Arc<dyn ArtifactStore>,
) -> Vec<Arc<dyn MaintenanceJob>> {
    vec![
        Arc::new(Rescuer::new(settings)),
        Arc::new(Expirer::new(settings)),
        Arc::new(Pruner::new(settings, export)),
        Arc::new(KeyPruner),
        Arc::new(CountCompactor),
        Arc::new(PriorityAging::new(settings)),
        Arc::new(Sweeper::new(settings, Arc::clone(files))),
    ]
}

/// The jobs of a deployment with a broker.
pub fn over_a_broker() -> Vec<Arc<dyn MaintenanceJob>> {
    vec![
        Arc::new(Dispatcher::default()),
        Arc::new(Relay::default()),
        Arc::new(ProgressCollector::default()),
    ]
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis())
        .unwrap_or(bounds::DURATION_MS)
        .min(bounds::DURATION_MS)
}
