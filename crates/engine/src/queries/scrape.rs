//! The metrics of a process and of its store, in Prometheus' formats.

use std::time::Duration;

use longhaul_domain::{
    NodeRecord, QueueName, Status, StoreError, Timestamp, bounds,
    statistics::{CountFilter, Measure, TaskCount},
};
use tokio::time::timeout;

use crate::{
    Engine,
    metrics::{ScrapeSnapshot, registry::Format},
    store_health::STORE_TIMEOUT,
};

/// A wait that is longer than this is looked at more closely, in milliseconds.
const LONG_WAIT_MS: u64 = 60_000;
/// Queues that are looked at more closely in one scrape.
const MAX_QUEUES: usize = 50;

impl Engine {
    /// All metrics as text. Those of the store are left out while it is down.
    pub async fn scrape(&self, format: Format) -> Result<String, std::fmt::Error> {
        let reading = timeout(STORE_TIMEOUT, self.read_gauges());
        let (read, written) = tokio::join!(reading, self.check_write());

        let mut snapshot = match read {
            Ok(Ok(snapshot)) => snapshot,
            Ok(Err(error)) => {
                tracing::warn!(
                    %error,
                    "reading the store's metrics failed; leaving them out of this scrape"
                );
                ScrapeSnapshot::default()
            }
            Err(_) => {
                tracing::warn!(
                    "the store did not answer in time; leaving its metrics out of this scrape"
                );
                ScrapeSnapshot::default()
            }
        };

        if let Err(error) = written {
            tracing::warn!(%error, "the store cannot be written; tasks_store_up is 0");
            snapshot.is_store_up = false;
        }

        if let Some(clock) = &self.store_clock {
            snapshot.clock_lead_s = clock.lead().as_secs_f64();
        }

        snapshot.slots = self.local_node().map(|node| node.slots());
        snapshot.process = crate::metrics::process_snapshot();
        self.metrics.broker.show(self.broker.as_deref());
        self.metrics.text(&snapshot, format)
    }

    async fn read_gauges(&self) -> Result<ScrapeSnapshot, StoreError> {
        let task_counts = self.store.read_task_counts(&CountFilter::default()).await?;
        let (queues, task_types) = claimable(&task_counts);
        let due = if queues.is_empty() {
            None
        } else {
            self.store.next_due_at(&queues, &task_types).await?
        };

        let nodes = self.store.list_nodes().await?;
        let outbox = self.store.count_outbox(bounds::COUNT).await?;
        let now = self.store.now().await?;
        let waits_since = match due {
            Some(due) if due.plus_ms(LONG_WAIT_MS) < now => self.waits_since(&queues, now).await?,
            Some(_) | None => due,
        };

        Ok(ScrapeSnapshot {
            is_store_up: true,
            oldest_waiting_s: waits_since.map_or(0.0, |since| seconds(now.micros_since(since))),
            most_silent_s: longest_silence_s(&nodes, now),
            outbox: Some(outbox as u64),
            task_counts,
            nodes,
            ..ScrapeSnapshot::default()
        })
    }

    /// Since when the longest waiting task of these queues waits. Fair order may have given a task
    /// a due time before its submit, so both are looked at.
    async fn waits_since(
        &self,
        queues: &[QueueName],
        now: Timestamp,
    ) -> Result<Option<Timestamp>, StoreError> {
        let mut longest: Option<Timestamp> = None;
        for queue in queues.iter().take(MAX_QUEUES) {
            for hint in self.store.list_due(queue, 1).await? {
                let since = hint.due_at.max(hint.submitted_at).min(now);
                longest = Some(longest.map_or(since, |longest| longest.min(since)));
            }
        }

        Ok(longest)
    }
}

/// The queues and types with tasks that can be claimed once they are due, each sorted.
fn claimable(task_counts: &[TaskCount]) -> (Vec<QueueName>, Vec<String>) {
    let mut queues = Vec::new();
    let mut task_types = Vec::new();
    for TaskCount { key, n } in task_counts {
        let is_claimable = Status::parse(&key.label).is_some_and(Status::is_claimable);
        if key.measure == Measure::Status && *n > 0 && is_claimable {
            // People write rows with any text. Nodes claim from valid names only.
            queues.extend(QueueName::parse(&key.queue));
            task_types.push(key.task_type.clone());
        }
    }

    queues.sort();
    queues.dedup();
    task_types.sort();
    task_types.dedup();
    (queues, task_types)
}

fn longest_silence_s(nodes: &[NodeRecord], now: Timestamp) -> f64 {
    let alive = nodes.iter().filter(|node| node.lost_at.is_none());
    let silences = alive.map(|node| now.micros_since(node.heartbeat_at));
    silences.max().map_or(0.0, seconds)
}

fn seconds(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64()
}
