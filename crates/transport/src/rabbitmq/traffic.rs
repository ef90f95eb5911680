//! Counts what has gone over each queue and exchange since the process started.

use std::collections::BTreeMap;

use longhaul_domain::contract::broker::Traffic;
use parking_lot::Mutex;

/// Counts by name, without the namespace. There are as many names as configured queues. The lock is
/// held for one count or copy.
#[derive(Debug, Default)]
pub(super) struct TrafficCounts(Mutex<BTreeMap<String, Traffic>>);

impl TrafficCounts {
    pub(super) fn count(&self, name: &str, change: impl FnOnce(&mut Traffic)) {
        let mut counts = self.0.lock();
        // Almost every name is known already; only a new one is copied.
        match counts.get_mut(name) {
            Some(traffic) => change(traffic),
            None => change(counts.entry(name.to_owned()).or_default()),
        }
    }

    pub(super) fn read(&self) -> Vec<(String, Traffic)> {
        let counts = self.0.lock();
        counts
            .iter()
            .map(|(name, traffic)| (name.clone(), *traffic))
            .collect()
    }
}
