//! How many tasks stand where, by queue.

use std::collections::BTreeMap;

use longhaul_domain::{
    StoreError,
    queue::Queue,
    statistics::{Measure, Tally, TallyFilter},
};

use crate::Engine;

/// Counts by status; only those that are not zero.
pub type Counts = BTreeMap<String, i64>;

/// A queue and what is in it.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueCensus {
    pub queue: Queue,
    pub tasks: Counts,
}

impl Engine {
    /// Every queue with its tasks by status, sorted by name.
    pub async fn queue_census(&self) -> Result<Vec<QueueCensus>, StoreError> {
        let queues = self.store.list_queues().await?;
        let tallies = self.store.read_tallies(&TallyFilter::default()).await?;
        let tasks_of = |queue: &Queue| count(&tallies, |tally| tally.key.queue == queue.name);
        let mut all: Vec<_> = queues
            .into_iter()
            .map(|queue| QueueCensus {
                tasks: tasks_of(&queue),
                queue,
            })
            .collect();
        all.sort_by(|a, b| a.queue.name.cmp(&b.queue.name));
        Ok(all)
    }
}

/// Tasks of the present by status, among the tallies that are wanted.
pub(crate) fn count(tallies: &[Tally], is_wanted: impl Fn(&Tally) -> bool) -> Counts {
    let mut counts = Counts::new();
    for tally in tallies
        .iter()
        .filter(|tally| tally.key.measure == Measure::Status && is_wanted(tally))
    {
        *counts.entry(tally.key.label.clone()).or_default() += tally.n;
    }
    counts.retain(|_, n| *n != 0);
    counts
}
