//! The duties of every deployment, each on the skeleton of [`crate::service`].

mod ager;
mod expirer;
mod key_pruner;
mod pruner;
mod registrar;
mod relay;
mod rescuer;
mod ringer;
mod sweeper;
mod tallier;

use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{bounds, contract::ArtifactStore};

pub use ager::Ager;
pub use expirer::Expirer;
pub use key_pruner::KeyPruner;
pub use pruner::{Export, Pruner};
pub use registrar::Registrar;
pub use relay::Relay;
pub use rescuer::Rescuer;
pub use ringer::Ringer;
pub use sweeper::Sweeper;
pub use tallier::Tallier;

use crate::service::Duty;

/// What operators decide about the duties.
#[derive(Debug, Clone)]
pub struct DutySettings {
    /// A node that has not been heard of for this long is dead, and its tasks go to others.
    pub lease: Duration,
    /// How often dead nodes are looked for.
    pub rescue_every: Duration,
    /// Deaths of its node after which a task is quarantined.
    pub max_crashes: u32,
    /// An attempt that shows no sign for this long is failed although its node lives.
    pub silent: Duration,
    /// How long past its timeout an attempt's own node has to end it.
    pub timeout_grace: Duration,
    /// How long ended tasks are kept.
    pub keep_ended: Duration,
    /// How long `FAILED` and `DEAD_LETTER` tasks are kept.
    pub keep_dead_letters: Duration,
    /// How often files whose time is over are looked for.
    pub sweep_every: Duration,
    /// How long a task waits before it gets its part of the starts whatever its priority. Nothing: never.
    pub starve_after: Duration,
    /// How long tasks of a node that died are kept for nodes of its host. Nothing: not at all.
    pub keep_for_host: Duration,
}

const DAY: Duration = Duration::from_secs(24 * 3_600);

impl Default for DutySettings {
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
            keep_for_host: Duration::ZERO,
        }
    }
}

/// All duties, as the settings want them. With `export`, tasks are handed to it before they are deleted.
pub fn all(
    settings: &DutySettings,
    export: Option<Arc<dyn Export>>,
    files: &Arc<dyn ArtifactStore>,
) -> Vec<Arc<dyn Duty>> {
    vec![
        Arc::new(Rescuer::new(settings)),
        Arc::new(Expirer::new(settings)),
        Arc::new(Pruner::new(settings, export)),
        Arc::new(KeyPruner),
        Arc::new(Tallier),
        Arc::new(Ager::new(settings)),
        Arc::new(Sweeper::new(settings, Arc::clone(files))),
    ]
}

/// What is to do where there is a broker.
pub fn over_a_broker() -> Vec<Arc<dyn Duty>> {
    vec![
        Arc::new(Ringer::default()),
        Arc::new(Relay::default()),
        Arc::new(Registrar::default()),
    ]
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis())
        .unwrap_or(bounds::DURATION_MS)
        .min(bounds::DURATION_MS)
}
