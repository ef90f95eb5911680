//! The direct ring: whoever makes a task claimable rings for it at once, beside everything else.
//!
//! It never delays an answer. The first bell does not wait for company; while one batch is under way, and for a moment
//! after it, the next one gathers: each batch makes the broker write to its disk. What does not fit, what a broker does not take, and whatever queues have more waiting than the fleet can answer is left to the
//! ringer.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_domain::contract::{
    Broker,
    broker::{Bell, BrokerState, Published},
};
use tokio::time::Instant;

use crate::metrics::Metrics;

/// Bells that wait to be rung, for all queues: some megabytes. What comes beyond is the ringer's.
const WAITING: usize = 10_000;
/// Bells that are rung together.
const BATCH: usize = 1_000;
/// How long the bells after a batch gather.
const COMPANY: Duration = Duration::from_millis(5);
/// Bells of one queue within [`WITHOUT_A_WORD`], if the ringer says nothing: a burst, and no flood of the broker.
const UNHEARD: usize = 1_000;
/// The time that [`UNHEARD`] is about: the ringer speaks as often.
const WITHOUT_A_WORD: Duration = Duration::from_secs(1);
/// A ringer that has been silent for this long may have died: what it held is open again.
const RINGER_LIVES: Duration = Duration::from_secs(10);
/// The longest delay that a broker is asked to keep a bell for, in milliseconds. What is due later is the ringer's.
pub(crate) const LADDER_MS: u64 = 3_600_000;

/// Rings for what this process makes claimable.
#[derive(Debug)]
pub(crate) struct DirectRing {
    broker: Arc<dyn Broker>,
    metrics: Arc<Metrics>,
    desk: Mutex<Desk>,
}

#[derive(Debug, Default)]
struct Desk {
    gate: Gate,
    now: Vec<Bell>,
    later: Vec<(Bell, u64)>,
    is_ringing: bool,
}

impl DirectRing {
    pub(crate) fn new(broker: Arc<dyn Broker>, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            broker,
            metrics,
            desk: Mutex::default(),
        })
    }

    /// Rings for due tasks soon, unless their queue is held. Answers with whether it rings for all.
    pub(crate) fn ring(self: &Arc<Self>, bells: impl IntoIterator<Item = Bell>) -> bool {
        let (mut desk, at) = (self.desk(), Instant::now());
        let Desk {
            gate, now, later, ..
        } = &mut *desk;
        let mut rings_for_all = true;
        for bell in bells {
            match now.len() + later.len() < WAITING && gate.lets_by(&bell.queue, at) {
                true => now.push(bell),
                false => rings_for_all = false,
            }
        }
        self.go(desk);
        rings_for_all
    }

    /// Rings for a due task at once, if nothing else is being rung for. Answers with whether it does.
    pub(crate) fn ring_alone(self: &Arc<Self>, queue: &str, bell: impl FnOnce() -> Bell) -> bool {
        let mut desk = self.desk();
        let is_free = !desk.is_ringing && self.broker.state() == BrokerState::Up;
        if !is_free || !desk.gate.lets_by(queue, Instant::now()) {
            return false;
        }
        desk.now.push(bell());
        self.go(desk);
        true
    }

    /// Rings for a task that is due in so many milliseconds, if that is soon enough for the broker.
    pub(crate) fn ring_later(self: &Arc<Self>, bell: Bell, delay_ms: u64) {
        let mut desk = self.desk();
        let has_room = desk.now.len() + desk.later.len() < WAITING;
        if has_room && delay_ms <= LADDER_MS && desk.gate.lets_by(&bell.queue, Instant::now()) {
            desk.later.push((bell, delay_ms));
            self.go(desk);
        }
    }

    /// Whether more waits in the queue than there are bells for.
    pub(crate) fn is_held(&self, queue: &str) -> bool {
        self.desk().gate.is_held(queue, Instant::now())
    }

    /// The ringer has said which queues it holds.
    pub(crate) fn heard(&self, held: Vec<String>) {
        self.desk().gate.heard(held, Instant::now());
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts to ring, unless that is under way.
    fn go(self: &Arc<Self>, mut desk: MutexGuard<'_, Desk>) {
        let has_work = !desk.now.is_empty() || !desk.later.is_empty();
        if has_work && !std::mem::replace(&mut desk.is_ringing, true) {
            tokio::spawn(Arc::clone(self).ring_all());
        }
    }

    async fn ring_all(self: Arc<Self>) {
        loop {
            let (now, later) = {
                let mut desk = self.desk();
                let (now, later) = (desk.now.len().min(BATCH), desk.later.len().min(BATCH));
                let batch = (
                    desk.now.drain(..now).collect::<Vec<_>>(),
                    desk.later.drain(..later).collect::<Vec<_>>(),
                );
                desk.is_ringing = now + later > 0;
                batch
            };
            if now.is_empty() && later.is_empty() {
                return;
            }
            // A broker that is away hears nothing: nodes look into the store.
            if self.broker.state() == BrokerState::Up {
                self.ring_batch(&now, &later).await;
            }
            if now.len() < BATCH {
                tokio::time::sleep(COMPANY).await;
            }
        }
    }

    async fn ring_batch(&self, now: &[Bell], later: &[(Bell, u64)]) {
        let mut refused = BTreeSet::new();
        let mut again = Vec::new();
        if !now.is_empty() {
            for (bell, published) in now.iter().zip(self.broker.ring(now).await) {
                if let Published::Refused(_) = published {
                    refused.insert(bell.queue.clone());
                    again.push(bell.clone());
                }
            }
            self.metrics.broker.rung(now.len() - again.len());
        }
        if !later.is_empty() {
            // One that is refused is rung for when it is due.
            self.broker.ring_later(later).await;
            self.metrics.broker.rung(later.len());
        }
        if again.is_empty() {
            return;
        }
        // The first task of a queue finds no queue in the broker.
        let queues: Vec<String> = refused.into_iter().collect();
        match self.broker.declare(&queues).await {
            Ok(()) => {
                self.broker.ring(&again).await;
                self.metrics.broker.rung(again.len());
            }
            Err(error) => tracing::debug!(%error, "bells were refused and are left to the ringer"),
        }
    }
}

/// Which queues may be rung for directly.
#[derive(Debug, Default)]
struct Gate {
    held: HashSet<String>,
    heard_at: Option<Instant>,
    /// Bells of each queue since then.
    counted_from: Option<Instant>,
    counts: HashMap<String, usize>,
}

impl Gate {
    fn heard(&mut self, held: Vec<String>, now: Instant) {
        (self.held, self.heard_at) = (held.into_iter().collect(), Some(now));
        self.counts.clear();
        self.counted_from = Some(now);
    }

    fn is_held(&mut self, queue: &str, now: Instant) -> bool {
        if self
            .heard_at
            .is_some_and(|heard| now.duration_since(heard) > RINGER_LIVES)
        {
            self.held.clear();
        }
        self.held.contains(queue)
    }

    /// Whether one more bell of this queue may be rung; it is counted.
    fn lets_by(&mut self, queue: &str, now: Instant) -> bool {
        if self.is_held(queue, now) {
            return false;
        }
        if self
            .counted_from
            .is_none_or(|from| now.duration_since(from) > WITHOUT_A_WORD)
        {
            self.counts.clear();
            self.counted_from = Some(now);
        }
        match self.counts.get_mut(queue) {
            Some(count) => {
                *count += 1;
                *count <= UNHEARD
            }
            None => {
                self.counts.insert(queue.to_owned(), 1);
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_queue_is_left_to_the_ringer_until_it_says_otherwise_or_is_gone() {
        let (mut gate, start) = (Gate::default(), Instant::now());
        gate.heard(vec!["free".to_owned()], start);
        assert!(!gate.lets_by("free", start) && gate.lets_by("vip", start));
        gate.heard(Vec::new(), start);
        assert!(gate.lets_by("free", start));
        gate.heard(vec!["free".to_owned()], start);
        assert!(!gate.lets_by("free", start + RINGER_LIVES));
        assert!(gate.lets_by("free", start + RINGER_LIVES + Duration::from_millis(1)));
    }

    #[test]
    fn a_process_that_does_not_hear_the_ringer_limits_itself() {
        let (mut gate, start) = (Gate::default(), Instant::now());
        let rung = |gate: &mut Gate, at| (0..UNHEARD * 2).filter(|_| gate.lets_by("q", at)).count();
        assert_eq!(rung(&mut gate, start), UNHEARD);
        assert!(
            gate.lets_by("other", start),
            "each queue is counted by itself"
        );
        assert_eq!(rung(&mut gate, start + WITHOUT_A_WORD), 0);
        assert_eq!(rung(&mut gate, start + WITHOUT_A_WORD * 2), UNHEARD);
        gate.heard(Vec::new(), start + WITHOUT_A_WORD * 2);
        assert_eq!(
            rung(&mut gate, start + WITHOUT_A_WORD * 2),
            UNHEARD,
            "whoever hears may go on"
        );
    }
}
