//! The section `maintenance`: background work that one node does for all.

use longhaul::{MaintenanceSettings, operating::WireDuration};

use super::{check_waits, keys::section};

section! {
    /// Background work that one node does for all.
    pub struct Maintenance with settings: MaintenanceSettings {
        /// A node that has not sent a heartbeat for this long is dead, and its tasks go to others.
        /// A shorter lease finds deaths sooner, but may declare a paused node dead. The same on all
        /// nodes.
        pub lease: WireDuration = WireDuration(settings.lease),
        /// How often to look for dead nodes.
        pub rescue_every: WireDuration = WireDuration(settings.rescue_every),
        /// How many deaths of its node quarantine a task as a dead letter.
        pub max_crashes: u32 = settings.max_crashes,
        /// An attempt that saves no progress or checkpoint for this long is failed although its
        /// node lives.
        pub silent: WireDuration = WireDuration(settings.silent),
        /// How long after its timeout the node of an attempt may take to end it.
        pub timeout_grace: WireDuration = WireDuration(settings.timeout_grace),
        /// How long ended tasks are kept.
        pub keep_ended: WireDuration = WireDuration(settings.keep_ended),
        /// How long `FAILED` and `DEAD_LETTER` tasks are kept.
        pub keep_dead_letters: WireDuration = WireDuration(settings.keep_dead_letters),
        /// How often to look for expired files.
        pub sweep_every: WireDuration = WireDuration(settings.sweep_every),
        /// Tasks that have waited longer than this get every tenth start of their queue, the
        /// longest waiting first, whatever their priority. `0s` turns this off.
        pub starve_after: WireDuration = WireDuration(settings.starve_after),
        /// How long tasks of a dead node wait for a node on the same host, which may have their
        /// files; after that any node may take them. `0s` turns this off. The same on all nodes.
        pub host_affinity: WireDuration = WireDuration(settings.host_affinity),
    }
}

impl Maintenance {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        check_waits(&[
            ("maintenance.lease", self.lease),
            ("maintenance.rescue_every", self.rescue_every),
            ("maintenance.silent", self.silent),
            ("maintenance.sweep_every", self.sweep_every),
        ])
    }

    pub fn settings(&self) -> MaintenanceSettings {
        MaintenanceSettings {
            lease: self.lease.0,
            rescue_every: self.rescue_every.0,
            max_crashes: self.max_crashes,
            silent: self.silent.0,
            timeout_grace: self.timeout_grace.0,
            keep_ended: self.keep_ended.0,
            keep_dead_letters: self.keep_dead_letters.0,
            sweep_every: self.sweep_every.0,
            starve_after: self.starve_after.0,
            host_affinity: self.host_affinity.0,
        }
    }
}
