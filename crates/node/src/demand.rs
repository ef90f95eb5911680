//! What hints have asked of the node, and what it could not do yet.

use std::collections::BTreeSet;
use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use longhaul_domain::contract::broker::Hint;
use parking_lot::Mutex;

use crate::node::Node;

/// Queues and types that a node remembers for its refused hints.
const REFUSED: usize = 1_000;

/// A queue and a task type.
pub(crate) type QueueAndType = (String, String);

/// Counts by which the claimer and the queue consumers share the slots.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    /// Queue consumers that wait for a slot, or have just been given one.
    waiting_consumers: AtomicUsize,
    /// Tasks that were claimed because of a hint from the broker.
    claimed_by_hint: AtomicU64,
    /// Hints that were refused because their type had no free slot. The claimer asks the store for
    /// such tasks once there is a slot.
    refused_hints: Mutex<BTreeSet<QueueAndType>>,
}

impl Demand {
    pub(crate) fn waiting_consumers(&self) -> usize {
        self.waiting_consumers.load(Ordering::Relaxed)
    }

    pub(crate) fn claimed_by_hint(&self) -> u64 {
        self.claimed_by_hint.load(Ordering::Relaxed)
    }

    pub(crate) fn count_claims_by_hint(&self, tasks: usize) {
        self.claimed_by_hint
            .fetch_add(tasks as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_refused(&self, hint: &Hint) {
        let mut refused = self.refused_hints.lock();
        if refused.len() < REFUSED {
            refused.insert((hint.queue.clone(), hint.task_type.clone()));
        }
    }

    pub(crate) fn refused(&self) -> BTreeSet<QueueAndType> {
        self.refused_hints.lock().clone()
    }

    /// Takes out the refused hints, for a claim that may find their tasks.
    pub(crate) fn take_refused(&self) -> BTreeSet<QueueAndType> {
        std::mem::take(&mut *self.refused_hints.lock())
    }

    /// Puts back refused hints whose tasks the claim did not look for.
    pub(crate) fn put_back_refused(&self, refused: impl Iterator<Item = QueueAndType>) {
        self.refused_hints.lock().extend(refused);
    }
}

/// Counts a queue consumer as waiting for a slot while it lives.
pub(crate) struct WaitingConsumer(Arc<Node>);

impl WaitingConsumer {
    pub(crate) fn new(node: &Arc<Node>) -> Self {
        node.demand
            .waiting_consumers
            .fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(node))
    }
}

impl Drop for WaitingConsumer {
    fn drop(&mut self) {
        let waiting = &self.0.demand.waiting_consumers;
        waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
