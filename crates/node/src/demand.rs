//! What hints have asked of the node, and what it could not do yet.

use std::collections::BTreeSet;
use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use longhaul_domain::{QueueName, contract::broker::Hint};
use parking_lot::Mutex;

use crate::node::Node;

/// Queues and types that a node remembers for its refused hints.
const REFUSED: usize = 1_000;

/// A queue and a task type.
pub(crate) type QueueAndType = (QueueName, String);

/// Counts by which the claimer and the queue consumers share the slots.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    /// Queue consumers that wait for a slot, or have just been given one.
    slot_requests: AtomicUsize,
    /// Tasks that were claimed because of a hint from the broker.
    claimed_by_hint: AtomicU64,
    /// Hints that were refused because their type had no free slot. The claimer asks the store for
    /// such tasks once there is a slot.
    refused_hints: Mutex<BTreeSet<QueueAndType>>,
}

impl Demand {
    pub(crate) fn slot_requests(&self) -> usize {
        self.slot_requests.load(Ordering::Relaxed)
    }

    pub(crate) fn claimed_by_hint(&self) -> u64 {
        self.claimed_by_hint.load(Ordering::Relaxed)
    }

    pub(crate) fn count_claims_by_hint(&self, tasks: usize) {
        self.claimed_by_hint
            .fetch_add(tasks as u64, Ordering::Relaxed);
    }

    pub(crate) fn add_refused(&self, hint: &Hint) {
        // Checked and added under one lock, so that the consumers together stay within the bound.
        let mut refused = self.refused_hints.lock();
        if refused.len() < REFUSED {
            refused.insert((hint.queue.clone(), hint.task_type.clone()));
        }
    }

    pub(crate) fn refused(&self) -> BTreeSet<QueueAndType> {
        // A copy: the caller locks the in-flight set, and never both at once.
        self.refused_hints.lock().clone()
    }

    /// Takes out the refused hints, for a claim that may find their tasks.
    pub(crate) fn take_refused(&self) -> BTreeSet<QueueAndType> {
        // Taken whole: what is added later belongs to the next claim.
        std::mem::take(&mut *self.refused_hints.lock())
    }

    /// Puts back refused hints whose tasks the claim did not look for.
    pub(crate) fn put_back_refused(&self, refused: impl Iterator<Item = QueueAndType>) {
        // Added to the set, because consumers may have added hints since.
        self.refused_hints.lock().extend(refused);
    }
}

/// A queue consumer that wants a slot. It is counted while this lives.
pub(crate) struct SlotRequest(Arc<Node>);

impl SlotRequest {
    pub(crate) fn new(node: &Arc<Node>) -> Self {
        node.demand.slot_requests.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(node))
    }
}

impl Drop for SlotRequest {
    fn drop(&mut self) {
        let requests = &self.0.demand.slot_requests;
        requests.fetch_sub(1, Ordering::Relaxed);
    }
}
