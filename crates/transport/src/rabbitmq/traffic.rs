//! What has gone over each queue and exchange since the process started.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use longhaul_domain::contract::broker::Traffic;

/// Counts by name, without the namespace. There are as many names as queues are configured.
#[derive(Debug, Default)]
pub(super) struct TrafficBook(Mutex<BTreeMap<String, Traffic>>);

impl TrafficBook {
    pub(super) fn count(&self, name: &str, change: impl FnOnce(&mut Traffic)) {
        let mut book = self.lock();
        match book.get_mut(name) {
            Some(traffic) => change(traffic),
            None => change(book.entry(name.to_owned()).or_default()),
        }
    }

    pub(super) fn read(&self) -> Vec<(String, Traffic)> {
        self.lock()
            .iter()
            .map(|(name, traffic)| (name.clone(), *traffic))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Traffic>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
