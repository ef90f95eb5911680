//! The metrics of a process and of its store, as a scraper reads them.

use std::time::Duration;

use longhaul_domain::{
    Status, StoreError, bounds,
    statistics::{Measure, TallyFilter},
};

use crate::{
    Engine,
    metrics::{Sight, book::Format},
};

/// A store that takes longer is told to be down: the rest must be seen all the more.
const STORE_ANSWERS: Duration = Duration::from_secs(2);

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
                tracing::warn!("a scrape goes without what the store knows: it does not answer in time");
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
        for tally in tallies.iter().filter(|tally| tally.key.measure == Measure::Status && tally.n > 0) {
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
        let silent = nodes.iter().filter(|node| node.lost_at.is_none()).map(|node| now.micros_since(node.heartbeat_at));
        Ok(Sight {
            is_store_up: true,
            oldest_waiting_s: due.map_or(0.0, |due| seconds(now.micros_since(due))),
            most_silent_s: silent.max().map_or(0.0, seconds),
            outbox: Some(outbox as u64),
            tallies,
            nodes,
            ..Sight::default()
        })
    }
}

fn seconds(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64()
}
