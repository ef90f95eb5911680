//! Notices a server that has gone silent and a consumer that has stalled.
//!
//! A network that drops all packets breaks no connection, and heartbeats notice it only after half
//! a minute. Besides, a consumer may be open on both ends and still get nothing. So the watchdog
//! queries the server every second. When a consumer waits although its queue has messages, the
//! watchdog gives up the link after a few checks.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use longhaul_domain::contract::broker::BrokerError;
use parking_lot::Mutex;
use tokio::time::{Instant, interval};

use super::{connection::Shared, link::Link};
use crate::names;

const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// A consumer is checked once it has waited for this long.
const MIN_WAIT: Duration = Duration::from_secs(3);
/// How many checks in a row must find messages in the queue of a waiting consumer before it counts
/// as stalled.
const STALLED_AFTER_CHECKS: u32 = 3;

/// What the watchdog knows of a consumer.
#[derive(Debug)]
pub(super) struct ConsumerProbe {
    /// The full name of the consumer's queue.
    queue: String,
    /// Locked for one read or write.
    waiting_since: Mutex<Option<Instant>>,
}

/// Marks a consumer as waiting until it is dropped.
#[derive(Debug)]
pub(super) struct WaitGuard(Arc<ConsumerProbe>);

impl ConsumerProbe {
    pub(super) fn new(queue: String) -> Arc<Self> {
        Arc::new(Self {
            queue,
            waiting_since: Mutex::new(None),
        })
    }

    pub(super) fn start_waiting(self: &Arc<Self>) -> WaitGuard {
        *self.waiting_since.lock() = Some(Instant::now());
        WaitGuard(Arc::clone(self))
    }
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        *self.0.waiting_since.lock() = None;
    }
}

/// The consumers of one link. Each is listed once, because checking it costs a query.
#[derive(Debug, Default)]
pub(super) struct ConsumerProbes(Vec<Weak<ConsumerProbe>>);

impl ConsumerProbes {
    /// Adds a consumer. It may be added again with every channel that it opens.
    pub(super) fn add(&mut self, probe: &Arc<ConsumerProbe>) {
        let probe = Arc::downgrade(probe);
        self.0
            .retain(|known| known.strong_count() > 0 && !known.ptr_eq(&probe));
        self.0.push(probe);
    }

    pub(super) fn alive(&self) -> Vec<Arc<ConsumerProbe>> {
        self.0.iter().filter_map(Weak::upgrade).collect()
    }
}

/// Watches a link until it is broken, or breaks it.
pub(super) async fn watch(shared: Arc<Shared>, link: Arc<Link>) {
    let mut ticks = interval(CHECK_INTERVAL);
    let mut suspects = Suspects::new();
    loop {
        // A link that breaks for another reason ends its watchdog at once.
        tokio::select! {
            _ = ticks.tick() => {}
            _ = link.failed() => return,
        }

        match check(&shared, &link, &suspects).await {
            Ok(still_waiting) => suspects = still_waiting,
            Err(_) => return,
        }
    }
}

/// By consumer: since when it has waited, and how many checks have found messages in its queue.
type Suspects = HashMap<usize, (Instant, u32)>;

/// Checks the server and the consumers once. Breaks the link when one of them is at fault.
async fn check(shared: &Shared, link: &Link, suspects: &Suspects) -> Result<Suspects, BrokerError> {
    let dead_letters = shared.names.full(names::DEAD_LETTER_QUEUE);
    if link.message_count(&dead_letters).await?.is_none() {
        link.fail("its queues were deleted");
        return Ok(Suspects::new());
    }

    let mut found = Suspects::new();
    for probe in link.probes() {
        let Some(since) = waits_beside_messages(shared, link, &probe).await? else {
            continue;
        };

        let key = Arc::as_ptr(&probe).addr();
        let checks = match suspects.get(&key) {
            Some((before, checks)) if *before == since => checks + 1,
            Some(_) | None => 1,
        };
        if checks >= STALLED_AFTER_CHECKS {
            link.fail(format!(
                "a consumer of {} has stalled: messages wait and none is delivered",
                probe.queue
            ));
            return Ok(Suspects::new());
        }
        found.insert(key, (since, checks));
    }

    Ok(found)
}

/// Since when the consumer has waited, if it has waited for long and its queue has messages.
async fn waits_beside_messages(
    shared: &Shared,
    link: &Link,
    probe: &ConsumerProbe,
) -> Result<Option<Instant>, BrokerError> {
    let Some(since) = *probe.waiting_since.lock() else {
        return Ok(None);
    };
    if since.elapsed() < shared.at_least(MIN_WAIT) {
        return Ok(None);
    }

    let messages = link.message_count(&probe.queue).await?;
    Ok((messages.unwrap_or(0) > 0).then_some(since))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumer_that_opens_many_channels_is_listed_once() {
        let mut probes = ConsumerProbes::default();
        let [first, second] = ["a", "b"].map(|queue| ConsumerProbe::new(queue.to_owned()));
        for _ in 0..100 {
            probes.add(&first);
            probes.add(&second);
        }

        assert_eq!(probes.alive().len(), 2);
        drop(first);
        probes.add(&second);
        assert_eq!(probes.0.len(), 1, "a dropped consumer is forgotten");
    }
}
