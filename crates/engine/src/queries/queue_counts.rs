//! How many tasks each queue has, by status.

use std::collections::BTreeMap;

use longhaul_domain::{
    StoreError,
    queue::Queue,
    statistics::{CountFilter, Measure, TaskCount},
};

use crate::Engine;

/// Counts by status; only those that are not zero.
pub type Counts = BTreeMap<String, i64>;

/// A queue and the tasks in it.
#[derive(Debug, Clone, PartialEq)]
pub struct QueueCounts {
    pub queue: Queue,
    pub tasks: Counts,
}

impl Engine {
    /// Every queue with its tasks by status, sorted by name.
    pub async fn queue_counts(&self) -> Result<Vec<QueueCounts>, StoreError> {
        let queues = self.store.list_queues().await?;
        let task_counts = self.store.read_task_counts(&CountFilter::default()).await?;

        let mut all = Vec::with_capacity(queues.len());
        for queue in queues {
            let tasks = count(&task_counts, |count| queue.name == *count.key.queue);
            all.push(QueueCounts { queue, tasks });
        }

        all.sort_by(|a, b| a.queue.name.cmp(&b.queue.name));
        Ok(all)
    }
}

impl Engine {
    /// Whether there is such a queue: the configuration names it, a node serves it, or it had
    /// tasks.
    pub async fn knows_queue(&self, name: &str) -> Result<bool, StoreError> {
        if self.catalog.names_queue(name) {
            return Ok(true);
        }

        let queues = self.store.list_queues().await?;
        if queues.iter().any(|queue| queue.name == name) {
            return Ok(true);
        }

        let nodes = self.store.list_nodes().await?;
        let mut served = nodes.iter().filter_map(|node| node.serves.as_ref());
        Ok(served.any(|serves| serves.queues.iter().any(|queue| queue == name)))
    }
}

/// Tasks by their present status, from the counts for which `is_wanted` holds.
pub(crate) fn count(task_counts: &[TaskCount], is_wanted: impl Fn(&TaskCount) -> bool) -> Counts {
    let mut counts = Counts::new();
    for task_count in task_counts {
        if task_count.key.measure == Measure::Status && is_wanted(task_count) {
            *counts.entry(task_count.key.label.clone()).or_default() += task_count.n;
        }
    }

    counts.retain(|_, n| *n != 0);
    counts
}
