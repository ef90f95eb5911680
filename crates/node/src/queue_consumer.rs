//! The consumer of one queue: receives hints from the broker and claims their tasks by id.
//!
//! It takes no more hints than there are free slots, claims the tasks of all of them with one
//! statement, and acknowledges the hints once the claim is committed. Hints without a free slot go
//! back to the broker, so that nothing waits behind a busy node. A hint may be wrong or lost: the
//! dispatcher and the claimer find what hints miss.
//!
//! A backlogged queue is left to the claimer. The store's order then decides which task goes first,
//! and a hint must not change it.

mod batch;
mod early_hints;
mod pass_on;

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{
    QueueName, StoreError, TaskId, TaskRecord, bounds,
    contract::{
        Broker,
        broker::{Delivery, Hint, HintConsumer},
    },
};
use longhaul_sdk::random;
use tokio::{task::JoinSet, time::Instant};

use crate::{claimed, claimer, demand::SlotRequest, node::Node};
use batch::Batch;
use early_hints::EarlyHints;
use pass_on::PassOnLimit;

/// How long hints may wait here for a slot before they go back. Quick tasks free one in this time.
const SLOT_WAIT: Duration = Duration::from_millis(20);
/// How often the consumer checks whether its queue is still backlogged.
const BACKLOG_CHECK: Duration = Duration::from_millis(50);
/// Hints of tasks that are due later than this wait in the broker, others here. This is the
/// shortest delay that the broker has.
const SHORTEST_DELAY: Duration = Duration::from_millis(250);
/// The longest delay that the broker has. Tasks that are due later are found by the dispatcher.
const LONGEST_DELAY: Duration = Duration::from_secs(3_600);
/// A task that is due sooner than this counts as due. The broker's delays are whole milliseconds.
const DUE_NOW: Duration = Duration::from_millis(1);
/// When a task is looked up again whose hint came before its commit, or a moment before it was due.
const LOOKUP_AGAIN: Duration = Duration::from_millis(1);

/// Starts a consumer for each queue that the node serves, if there is a broker.
pub(crate) fn start_all(node: &Arc<Node>, loops: &mut JoinSet<()>) {
    let Some(broker) = node.engine().broker() else {
        return;
    };

    let (queues, has_types): (Vec<QueueName>, bool) = {
        let in_flight = node.in_flight();
        let slots = in_flight.slots();
        let queues = slots.queues().cloned().collect();
        (queues, slots.task_types().next().is_some())
    };
    if !has_types || node.settings.slots == 0 {
        return;
    }

    for (index, queue) in queues.into_iter().enumerate() {
        let consumer = QueueConsumer {
            node: Arc::clone(node),
            broker: Arc::clone(broker),
            hints: broker.hints(&queue),
            queue,
            index,
            unacknowledged: Vec::new(),
            early: EarlyHints::default(),
            pass_on_limit: PassOnLimit::default(),
            slot_request: None,
        };

        // A task each, so that a queue without free slots holds up no other queue.
        loops.spawn(consumer.run());
    }
}

struct QueueConsumer {
    node: Arc<Node>,
    broker: Arc<dyn Broker>,
    hints: Box<dyn HintConsumer>,
    queue: QueueName,
    /// The consumer's own wakeup.
    index: usize,
    /// Received hints that had no slot. The broker still has them.
    unacknowledged: Vec<Delivery>,
    /// Acknowledged hints whose tasks are not due or not committed yet.
    early: EarlyHints,
    pass_on_limit: PassOnLimit,
    /// Set while the consumer waits for a slot, and until it has used it.
    slot_request: Option<SlotRequest>,
}

impl QueueConsumer {
    async fn run(mut self) {
        self.declare_queue().await;

        while !self.node.shutdown.is_draining() {
            if self.node.engine().is_backlogged(&self.queue) {
                self.leave_queue_to_claimer().await;
                continue;
            }

            let free_slots = self.free_slots();
            if free_slots == 0 {
                self.wait_for_slot().await;
                continue;
            }
            if self.yields_slot().await {
                continue;
            }

            if let Some(received) = self.receive(free_slots).await
                && let Err(error) = self.claim(received).await
            {
                self.wait_after(&error).await;
            }
        }

        self.return_hints().await;
    }

    fn free_slots(&self) -> usize {
        let in_flight = self.node.in_flight();
        in_flight
            .room_in_queue(&self.queue)
            .min(bounds::CLAIM_BATCH)
    }

    /// Declares the queue to the broker, however long that takes. Until then the claimer works.
    async fn declare_queue(&mut self) {
        let queues = [self.queue.to_string()];
        while let Err(error) = self.broker.declare(&queues).await {
            tracing::warn!(%error, queue = self.queue.as_str(), "queue could not be declared; retrying");
            let state = self.broker.state();
            let wait = claimer::RETRY_AFTER.mul_f64(4.0 + random::unit());

            // The broker's state was read before: a change since then ends the wait at once.
            tokio::select! {
                () = self.node.shutdown.draining.cancelled() => return,
                _ = self.broker.state_after(&state) => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Returns all hints to the broker. Early hints, which it no longer has, are published again.
    async fn return_hints(&mut self) {
        // With the pause these hints go back to the broker.
        self.unacknowledged.clear();
        self.hints.pause().await;

        let early = self.early.take_all();
        if !early.is_empty() {
            self.broker.publish_hints(&early).await;
        }
    }

    /// Leaves the queue to the claimer while it is backlogged. Its hints go to nodes that do not
    /// know of the backlog yet.
    async fn leave_queue_to_claimer(&mut self) {
        self.unacknowledged.clear();
        // Before the claimer is woken: a hint must not change the store's order.
        self.hints.pause().await;
        self.node.engine().wakeups().notify_backlog();

        while self.node.engine().is_backlogged(&self.queue) {
            // The end of a backlog has no wakeup of its own, so the consumer polls for it.
            tokio::select! {
                () = self.node.shutdown.draining.cancelled() => return,
                () = tokio::time::sleep(BACKLOG_CHECK) => {}
            }
        }
    }

    /// Waits for a free slot: for a moment with the hints, then without them.
    async fn wait_for_slot(&mut self) {
        let node = Arc::clone(&self.node);
        let index = self.index;
        let slot = async {
            // A slot that loses against the drain stays free, which is what a drain wants.
            tokio::select! {
                () = node.shutdown.draining.cancelled() => {}
                () = node.wakeups.wait_in_consumer(index) => {}
            }
        };
        tokio::pin!(slot);

        if tokio::time::timeout(SLOT_WAIT, &mut slot).await.is_err() {
            // Counted before the hints go back: other consumers leave the next slot to this one.
            self.slot_request
                .get_or_insert_with(|| SlotRequest::new(&node));
            self.return_hints().await;
            slot.await;
        }
    }

    /// A queue that has its fair share of the slots lets waiting queues go first, for a moment:
    /// they may have returned their hints. Returns whether no slot is left then.
    async fn yields_slot(&mut self) -> bool {
        let own = usize::from(self.slot_request.is_some());
        let do_others_wait = self.node.demand.slot_requests() > own;
        if !do_others_wait || !self.has_its_fair_share() {
            return false;
        }

        tokio::time::sleep(SLOT_WAIT).await;
        self.free_slots() == 0
    }

    fn has_its_fair_share(&self) -> bool {
        let in_flight = self.node.in_flight();
        in_flight.slots().has_its_fair_share(&self.queue)
    }

    /// Waits for hints, or until an early hint is due. `None` if the drain has begun.
    async fn receive(&mut self, limit: usize) -> Option<Vec<Delivery>> {
        if !self.unacknowledged.is_empty() {
            let count = self.unacknowledged.len().min(limit);
            return Some(self.unacknowledged.drain(..count).collect());
        }

        let first_due = self.early.first_due();
        // In this order: a node that drains must not claim, and early hints are not put off by new
        // ones.
        let received = tokio::select! {
            biased;
            () = self.node.shutdown.draining.cancelled() => return None,
            () = until(first_due) => Vec::new(),
            received = self.hints.next(limit) => received,
            () = tokio::time::sleep(SLOT_WAIT), if self.slot_request.is_some() => Vec::new(),
        };

        self.slot_request = None;
        Some(received)
    }

    /// Claims and starts the tasks for which there are slots, and acknowledges their hints.
    async fn claim(&mut self, received: Vec<Delivery>) -> Result<(), StoreError> {
        let Batch {
            slots,
            to_claim,
            early,
            to_acknowledge,
            to_pass_on,
        } = self.reserve_slots(received).await;

        let claimed = match claim_tasks(&self.node, &to_claim).await {
            Ok(claimed) => claimed,
            Err(error) => {
                // The broker still has the hints that it has just sent, but not the early ones.
                self.early.add(Instant::now(), early);
                return Err(error);
            }
        };

        self.node.demand.count_claims_by_hint(claimed.len());
        let ids: HashSet<TaskId> = claimed.iter().map(|task| task.id).collect();
        claimed::start_served(&self.node, claimed);
        // The tasks have slots of their own now.
        drop(slots);

        // The claim is committed: now the broker may forget the hints. It may do so before they are
        // published again below: the dispatcher finds their tasks if this process dies in between.
        self.early.remove(&ids);
        self.hints.answered(&to_acknowledge).await;

        let unclaimed = to_claim
            .into_iter()
            .filter(|hint| !ids.contains(&hint.task_id));
        self.try_again_when_due(unclaimed).await;
        self.pass_on(to_pass_on).await;
        Ok(())
    }

    /// Decides what happens to each received hint and to each early one that is due, and reserves
    /// the slots of those that are claimed now.
    async fn reserve_slots(&mut self, received: Vec<Delivery>) -> Batch {
        let node = Arc::clone(&self.node);
        // No claim for all free slots is under way while this lives.
        let _shared = node.admission.share_slots().await;
        let due = self.early.take_due(Instant::now());

        let mut batch = Batch::new(&node);
        // One lock for the whole batch: no eager start takes a slot in between.
        let mut rest = batch.add(&mut node.in_flight(), received, due);

        self.unacknowledged.append(&mut rest.without_slot);
        self.early.add(Instant::now() + LOOKUP_AGAIN, rest.later);
        for hint in rest.refused {
            self.refuse(hint);
        }
        batch
    }

    /// The type of this hint has no free slot. The claimer looks for the task once there is one.
    fn refuse(&mut self, hint: Hint) {
        // The claimer would not find a task that is not committed yet.
        if let Some(hint) = self.early.look_up_again(hint) {
            self.node.demand.add_refused(&hint);
            self.node.wakeups.notify_refused_hint();
        }
    }

    /// Looks later for tasks that could not be claimed because they are not due or not committed
    /// yet: here if that is soon, otherwise by a delayed hint.
    async fn try_again_when_due(&mut self, hints: impl Iterator<Item = Hint>) {
        let now = Instant::now();
        let mut delayed = Vec::new();

        for hint in hints {
            let until_due = self.node.engine().store_time().until(hint.due_at);
            if until_due < DUE_NOW {
                // Another node has claimed the task, unless it is not committed yet.
                self.early.look_up_again(hint);
            } else if until_due < SHORTEST_DELAY {
                self.early.add(now + until_due + LOOKUP_AGAIN, [hint]);
            } else if until_due <= LONGEST_DELAY {
                delayed.push((hint, millis(until_due)));
            }
            // The dispatcher publishes another hint for a task that is due later.
        }

        if !delayed.is_empty() {
            self.broker.publish_hints_later(&delayed).await;
        }
    }

    /// Passes on hints of types that this node does not serve, because another node may.
    async fn pass_on(&mut self, hints: Vec<Hint>) {
        let now = self.node.engine().store_time().now();
        let selected = self.pass_on_limit.select(hints, now);
        if selected.is_empty() {
            return;
        }

        let delay_ms = millis(SHORTEST_DELAY);
        let delayed: Vec<(Hint, u64)> = selected.into_iter().map(|hint| (hint, delay_ms)).collect();
        self.broker.publish_hints_later(&delayed).await;
    }

    /// The store did not claim: the hints go to other nodes.
    async fn wait_after(&mut self, error: &StoreError) {
        tracing::warn!(%error, queue = self.queue.as_str(), "claim by hints failed; the hints go back");
        self.return_hints().await;
        claimer::retry_wait(&self.node, error).await;
    }
}

async fn claim_tasks(node: &Node, to_claim: &[Hint]) -> Result<Vec<TaskRecord>, StoreError> {
    let ids = to_claim.iter().map(|hint| hint.task_id);
    let ids: BTreeSet<TaskId> = ids.take(bounds::CLAIM_BATCH).collect();

    if ids.is_empty() {
        return Ok(Vec::new());
    }
    node.claim_by_id(ids).await
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
