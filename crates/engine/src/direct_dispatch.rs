//! Direct dispatch: a process that makes a task claimable publishes its hint at once, at the same
//! time as the commit.
//!
//! It never delays an answer. The first hint goes out alone. While a batch is under way, and for a
//! moment after it, the next batch gathers, because each batch makes the broker write to its disk.
//! The dispatcher takes over what is left: hints that do not fit, that the broker refuses, or whose
//! queue has more waiting tasks than the nodes can claim soon.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::contract::{
    Broker,
    broker::{BrokerState, Hint, Published},
};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::metrics::Metrics;

/// Hints of all queues that wait to be published: some megabytes.
const MAX_WAITING: usize = 10_000;
/// Hints that are published together.
const BATCH: usize = 1_000;
/// How long hints gather after a batch.
const GATHER: Duration = Duration::from_millis(5);
/// Hints of one queue within [`LIMIT_WINDOW`] while the dispatcher is silent: enough for a burst,
/// too few to flood the broker.
const UNCONFIRMED_LIMIT: usize = 1_000;
/// The dispatcher reports once in this time.
const LIMIT_WINDOW: Duration = Duration::from_secs(1);
/// A dispatcher that has been silent for this long may be gone: its backlogged queues are open
/// again.
const DISPATCHER_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest delay that the broker keeps a hint for, in milliseconds. The dispatcher finds tasks
/// that are due later.
pub(crate) const MAX_DELAY_MS: u64 = 3_600_000;

/// Publishes hints for what this process makes claimable.
#[derive(Debug)]
pub(crate) struct DirectDispatch {
    broker: Arc<dyn Broker>,
    metrics: Arc<Metrics>,
    /// Never held across an await: hints are taken out under the lock and published without it.
    outgoing: Mutex<Outgoing>,
}

/// Hints that wait to be published.
#[derive(Debug, Default)]
struct Outgoing {
    gate: Gate,
    now: Vec<Hint>,
    /// With their delays in milliseconds.
    later: Vec<(Hint, u64)>,
    /// Whether a publisher runs.
    is_publishing: bool,
}

impl Outgoing {
    fn has_room(&self) -> bool {
        self.now.len() + self.later.len() < MAX_WAITING
    }
}

impl DirectDispatch {
    pub(crate) fn new(broker: Arc<dyn Broker>, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            broker,
            metrics,
            outgoing: Mutex::default(),
        })
    }

    /// Publishes hints for due tasks soon, except those of backlogged queues. Returns whether it
    /// publishes all of them.
    pub(crate) fn publish(self: &Arc<Self>, hints: impl IntoIterator<Item = Hint>) -> bool {
        let now = Instant::now();
        let mut outgoing = self.outgoing.lock();
        let mut publishes_all = true;

        for hint in hints {
            if outgoing.has_room() && outgoing.gate.admits(&hint.queue, now) {
                outgoing.now.push(hint);
            } else {
                publishes_all = false;
            }
        }

        self.start_publishing(outgoing);
        publishes_all
    }

    /// Publishes a hint at once, if no other one is under way. Returns whether it does.
    pub(crate) fn publish_alone(
        self: &Arc<Self>,
        queue: &str,
        hint: impl FnOnce() -> Hint,
    ) -> bool {
        let mut outgoing = self.outgoing.lock();
        let is_free = !outgoing.is_publishing && self.broker.state() == BrokerState::Up;
        if !is_free || !outgoing.gate.admits(queue, Instant::now()) {
            return false;
        }

        outgoing.now.push(hint());
        self.start_publishing(outgoing);
        true
    }

    /// Publishes a hint after this many milliseconds, if the broker keeps hints for so long.
    pub(crate) fn publish_later(self: &Arc<Self>, hint: Hint, delay_ms: u64) {
        let mut outgoing = self.outgoing.lock();
        if !outgoing.has_room() || delay_ms > MAX_DELAY_MS {
            return;
        }

        if outgoing.gate.admits(&hint.queue, Instant::now()) {
            outgoing.later.push((hint, delay_ms));
            self.start_publishing(outgoing);
        }
    }

    /// Whether more tasks wait in the queue than the dispatcher publishes hints for.
    pub(crate) fn is_backlogged(&self, queue: &str) -> bool {
        let mut outgoing = self.outgoing.lock();
        outgoing.gate.is_backlogged(queue, Instant::now())
    }

    /// The dispatcher has reported which queues are backlogged.
    pub(crate) fn set_backlogged(&self, queues: Vec<String>) {
        let mut outgoing = self.outgoing.lock();
        outgoing.gate.set_backlogged(queues, Instant::now());
    }

    /// Starts a publisher, unless one runs.
    fn start_publishing(self: &Arc<Self>, mut outgoing: MutexGuard<'_, Outgoing>) {
        let is_empty = outgoing.now.is_empty() && outgoing.later.is_empty();
        if !is_empty && !std::mem::replace(&mut outgoing.is_publishing, true) {
            // In a task of its own: a submit does not wait for the broker. `is_publishing`, set
            // under the lock, keeps it to one.
            tokio::spawn(Arc::clone(self).publish_all());
        }
    }

    async fn publish_all(self: Arc<Self>) {
        loop {
            let (now, later) = self.take_batch();
            if now.is_empty() && later.is_empty() {
                return;
            }

            // While the broker is down, nodes poll the store, and hints are dropped.
            if self.broker.state() == BrokerState::Up {
                self.publish_batch(&now, &later).await;
            }
            if now.len() < BATCH {
                tokio::time::sleep(GATHER).await;
            }
        }
    }

    fn take_batch(&self) -> (Vec<Hint>, Vec<(Hint, u64)>) {
        let mut outgoing = self.outgoing.lock();
        let now_count = outgoing.now.len().min(BATCH);
        let later_count = outgoing.later.len().min(BATCH);
        let now: Vec<Hint> = outgoing.now.drain(..now_count).collect();
        let later: Vec<(Hint, u64)> = outgoing.later.drain(..later_count).collect();

        // Under the same lock that found nothing: the next hint starts a new publisher.
        outgoing.is_publishing = now_count + later_count > 0;
        (now, later)
    }

    async fn publish_batch(&self, now: &[Hint], later: &[(Hint, u64)]) {
        let refused = self.publish_due(now).await;
        if !later.is_empty() {
            // A refused one is published again when it is due.
            self.broker.publish_hints_later(later).await;
            self.metrics.broker.published(later.len());
        }

        if !refused.is_empty() {
            self.declare_and_retry(&refused).await;
        }
    }

    /// Returns the hints that the broker refused.
    async fn publish_due(&self, hints: &[Hint]) -> Vec<Hint> {
        let mut refused = Vec::new();
        if hints.is_empty() {
            return refused;
        }

        let outcomes = self.broker.publish_hints(hints).await;
        for (hint, published) in hints.iter().zip(outcomes) {
            if let Published::Refused(_) = published {
                refused.push(hint.clone());
            }
        }

        self.metrics.broker.published(hints.len() - refused.len());
        refused
    }

    /// The first task of a queue finds no queue in the broker: it is declared here.
    async fn declare_and_retry(&self, refused: &[Hint]) {
        let queues: BTreeSet<&str> = refused.iter().map(|hint| hint.queue.as_str()).collect();
        let queues: Vec<String> = queues.into_iter().map(str::to_owned).collect();

        match self.broker.declare(&queues).await {
            Ok(()) => {
                self.broker.publish_hints(refused).await;
                self.metrics.broker.published(refused.len());
            }
            Err(error) => {
                tracing::debug!(
                    %error,
                    "the broker refused hints; the dispatcher publishes them again"
                );
            }
        }
    }
}

/// Which queues may be published for directly.
#[derive(Debug, Default)]
struct Gate {
    backlogged: HashSet<String>,
    reported_at: Option<Instant>,
    /// Hints of each queue since `counted_from`.
    counts: HashMap<String, usize>,
    counted_from: Option<Instant>,
}

impl Gate {
    fn set_backlogged(&mut self, queues: Vec<String>, now: Instant) {
        self.backlogged = queues.into_iter().collect();
        self.reported_at = Some(now);
        self.restart_counts(now);
    }

    fn is_backlogged(&mut self, queue: &str, now: Instant) -> bool {
        if is_older(self.reported_at, DISPATCHER_TIMEOUT, now) {
            self.backlogged.clear();
        }

        self.backlogged.contains(queue)
    }

    /// Whether one more hint of this queue may be published. It is counted.
    fn admits(&mut self, queue: &str, now: Instant) -> bool {
        if self.is_backlogged(queue, now) {
            return false;
        }
        if self.counted_from.is_none() || is_older(self.counted_from, LIMIT_WINDOW, now) {
            self.restart_counts(now);
        }

        if let Some(count) = self.counts.get_mut(queue) {
            *count += 1;
            *count <= UNCONFIRMED_LIMIT
        } else {
            self.counts.insert(queue.to_owned(), 1);
            true
        }
    }

    fn restart_counts(&mut self, now: Instant) {
        self.counts.clear();
        self.counted_from = Some(now);
    }
}

fn is_older(moment: Option<Instant>, age: Duration, now: Instant) -> bool {
    moment.is_some_and(|moment| now.duration_since(moment) > age)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlogged_queue_is_closed_until_the_dispatcher_reopens_it_or_is_gone() {
        let mut gate = Gate::default();
        let start = Instant::now();
        gate.set_backlogged(vec!["free".to_owned()], start);
        assert!(!gate.admits("free", start) && gate.admits("vip", start));

        gate.set_backlogged(Vec::new(), start);
        assert!(gate.admits("free", start));

        gate.set_backlogged(vec!["free".to_owned()], start);
        assert!(!gate.admits("free", start + DISPATCHER_TIMEOUT));
        assert!(gate.admits(
            "free",
            start + DISPATCHER_TIMEOUT + Duration::from_millis(1)
        ));
    }

    #[test]
    fn without_reports_of_the_dispatcher_a_process_limits_itself() {
        let mut gate = Gate::default();
        let start = Instant::now();
        let admitted = |gate: &mut Gate, at| {
            let attempts = std::iter::repeat_with(|| gate.admits("q", at));
            attempts
                .take(UNCONFIRMED_LIMIT * 2)
                .filter(|admitted| *admitted)
                .count()
        };
        assert_eq!(admitted(&mut gate, start), UNCONFIRMED_LIMIT);
        assert!(
            gate.admits("other", start),
            "each queue is counted by itself"
        );

        assert_eq!(admitted(&mut gate, start + LIMIT_WINDOW), 0);
        let later = start + LIMIT_WINDOW * 2;
        assert_eq!(admitted(&mut gate, later), UNCONFIRMED_LIMIT);
        gate.set_backlogged(Vec::new(), later);
        assert_eq!(
            admitted(&mut gate, later),
            UNCONFIRMED_LIMIT,
            "a report starts a new count"
        );
    }
}
