//! The metrics of a process and of its store, as a scraper reads them.

use std::time::Duration;

use longhaul_domain::{
    Status, StoreError, Timestamp, bounds,
    statistics::{Measure, TallyFilter},
};

use crate::{
    Engine,
    metrics::{Sight, book::Format},
};

/// A store that takes longer is told to be down: the rest must be seen all the more.
const STORE_ANSWERS: Duration = Duration::from_secs(2);

/// A wait that is told as it is only after a closer look, in milliseconds.
const LONG_MS: u64 = 60_000;
/// Queues that one scrape looks into.
const LOOKED_AT: usize = 50;

impl Engine {
    /// All metrics as text. What only the store knows is looked up, and left out while it is away.
    pub async fn scrape(&self, format: Format) -> Result<String, std::fmt::Error> {
        let seen = tokio::time::timeout(STORE_ANSWERS, self.look_at_store()).await;
        let mut sight = match seen {
            Ok(Ok(sight)) => sight,
            Ok(Err(error)) => {
                tracing::warn!(%error, "a scrape goes without what the store knows");
                Sight::default()
            }
            Err(_) => {
                tracing::warn!(
                    "a scrape goes without what the store knows: it does not answer in time"
                );
                Sight::default()
            }
        };
        sight.slots = self.local_node().map(|node| node.slots());
        sight.process = crate::metrics::process_sight();
        self.metrics.broker.show(self.broker.as_deref());
        self.metrics.text(&sight, format)
    }

    async fn look_at_store(&self) -> Result<Sight, StoreError> {
        let tallies = self.store.read_tallies(&TallyFilter::default()).await?;
        let (mut queues, mut types) = (Vec::new(), Vec::new());
        for tally in tallies
            .iter()
            .filter(|tally| tally.key.measure == Measure::Status && tally.n > 0)
        {
            if Status::parse(&tally.key.label).is_some_and(Status::is_claimable) {
                queues.push(tally.key.queue.clone());
                types.push(tally.key.task_type.clone());
            }
        }
        for names in [&mut queues, &mut types] {
            names.sort();
            names.dedup();
        }
        let due = match queues.is_empty() {
            true => None,
            false => self.store.next_due_at(&queues, &types).await?,
        };
        let nodes = self.store.list_nodes().await?;
        let outbox = self.store.count_outbox(bounds::COUNT).await?;
        let now = self.store.now().await?;
        let waits_since = match due {
            Some(due) if due.plus_ms(LONG_MS) < now => self.waits_since(&queues, now).await?,
            Some(_) | None => due,
        };
        let silent = nodes
            .iter()
            .filter(|node| node.lost_at.is_none())
            .map(|node| now.micros_since(node.heartbeat_at));
        Ok(Sight {
            is_store_up: true,
            oldest_waiting_s: waits_since.map_or(0.0, |since| seconds(now.micros_since(since))),
            most_silent_s: silent.max().map_or(0.0, seconds),
            outbox: Some(outbox as u64),
            tallies,
            nodes,
            ..Sight::default()
        })
    }

    /// Since when the first in line of these queues wait, the longest of them. A place in line may be older than its task.
    async fn waits_since(
        &self,
        queues: &[String],
        now: Timestamp,
    ) -> Result<Option<Timestamp>, StoreError> {
        let mut longest: Option<Timestamp> = None;
        for queue in queues.iter().take(LOOKED_AT) {
            for bell in self.store.list_due(queue, 1).await? {
                let since = bell.due_at.max(bell.submitted_at).min(now);
                longest = Some(longest.map_or(since, |longest| longest.min(since)));
            }
        }
        Ok(longest)
    }
}

fn seconds(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64()
}
