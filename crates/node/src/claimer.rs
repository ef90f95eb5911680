//! The claimer: asks the store for as many tasks as there are free slots, and waits when there is
//! nothing to claim.
//!
//! While hints arrive over a broker, the queue consumers claim and the claimer only looks now and
//! then for what the hints have missed.

mod empty_fair_shares;
mod notified;
mod round;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{QueueName, StoreError, contract::broker::BrokerState};
use longhaul_sdk::random;
use tokio::time::Instant;

use crate::{
    claimed::ClaimedTasks,
    deadlines::{claim_timeout, within},
    demand::QueueAndType,
    host_affinity::{self, HostAffinity},
    node::Node,
    pace::Pace,
    slots::{Room, Scope},
};
use empty_fair_shares::EmptyFairShares;
use notified::{Notified, claim_notified};
use round::Round;
pub(crate) use round::claim_scopes;

/// How long a loop that claims waits after the store refused a claim.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(500);
/// How often the claimer looks while hints arrive over the broker.
const INTERVAL_BELOW_HINTS: Duration = Duration::from_secs(5);

/// Runs until the drain.
pub(crate) async fn run(node: Arc<Node>) {
    let mut claimer = Claimer::new(node);

    while !claimer.node.shutdown.is_draining() {
        let plan = claimer.plan_round();
        if plan.claimable.is_empty() {
            claimer.wait_for_slot().await;
            continue;
        }

        if let Err(error) = claimer.round(&plan).await {
            claimer.wait_after(&error).await;
        }
    }
}

struct Claimer {
    node: Arc<Node>,
    pace: Pace,
    /// Tasks of the last claim. They start while the store answers the next one.
    batch: ClaimedTasks,
    host_affinity: HostAffinity,
    empty_fair_shares: EmptyFairShares,
    /// Whether the next round claims the fair share of each queue before all else: the last round
    /// may have left tasks in the store, or a queue is backlogged.
    claims_fair_shares: bool,
    /// The count of tasks claimed by hints, as of the last round.
    claimed_by_hint: u64,
}

/// The scopes of one round.
struct RoundPlan {
    /// Those with free slots, in the order in which they are claimed.
    claimable: Vec<Scope>,
    /// Those without. A slot in one of them is a reason for the next round.
    full: Vec<Scope>,
}

/// What follows a round.
enum Next {
    /// There may be more to claim.
    ClaimAgain,
    /// The queue consumers claim what is there.
    LeaveToHints,
    /// Nothing is left that could be claimed now.
    WaitForWork,
}

impl Claimer {
    fn new(node: Arc<Node>) -> Self {
        Self {
            pace: Pace::new(node.settings.poll),
            batch: ClaimedTasks::new(&node),
            host_affinity: HostAffinity::default(),
            empty_fair_shares: EmptyFairShares::default(),
            claims_fair_shares: false,
            claimed_by_hint: 0,
            node,
        }
    }

    /// Fair shares come first while tasks wait for slots.
    fn plan_round(&mut self) -> RoundPlan {
        self.claims_fair_shares |= self.serves_backlogged_queue();
        let in_flight = self.node.in_flight();

        let mut claimable = Vec::new();
        if self.claims_fair_shares {
            claimable = self
                .empty_fair_shares
                .leave_out(in_flight.open_fair_shares());
        }
        claimable.extend(in_flight.open_scopes());

        RoundPlan {
            claimable,
            full: in_flight.full_scopes(),
        }
    }

    /// Whether the dispatcher reports that a queue of this node has more due tasks than hints.
    fn serves_backlogged_queue(&self) -> bool {
        let engine = self.node.engine();
        let in_flight = self.node.in_flight();
        let mut queues = in_flight.slots().queues();
        queues.any(|queue| engine.is_backlogged(queue))
    }

    async fn wait_for_slot(&mut self) {
        self.batch.start();
        // A wakeup that loses against the drain is not needed any more.
        tokio::select! {
            () = self.node.shutdown.draining.cancelled() => {}
            () = self.node.wakeups.wait_in_claimer() => {}
        }
    }

    /// One claim for each scope, and the wait that follows.
    async fn round(&mut self, plan: &RoundPlan) -> Result<(), StoreError> {
        // Taken before the claim: a hint that is refused during the claim stays for the next one.
        let refused = self.node.demand.take_refused();
        let claimed = self.claim(&plan.claimable).await;

        let may_wait_still = |(queue, task_type): &QueueAndType| match &claimed {
            Ok(round) => !round.settles(queue, task_type),
            // These hints are acknowledged: only the dispatcher would publish them again.
            Err(_) => true,
        };
        let refused = refused.into_iter().filter(may_wait_still);
        self.node.demand.put_back_refused(refused);

        let hints_claim = self.update_claimed_by_hint();
        self.claims_fair_shares = claimed.as_ref().is_ok_and(|round| round.may_have_more);
        let round = claimed?;
        self.empty_fair_shares.add(&round.empty);

        match self.next(&round, hints_claim) {
            Next::ClaimAgain => self.pace.found(),
            Next::LeaveToHints => {
                self.pace.found();
                self.batch.start();
                self.wait_below_hints().await;
            }
            Next::WaitForWork => {
                let wait = self.poll_interval(round.claimed).await;
                let can_claim_by_id = plan.full.is_empty() && !round.has_skipped;
                self.wait_for_work(wait, &plan.full, can_claim_by_id)
                    .await?;
            }
        }

        Ok(())
    }

    /// Claims what is reserved for this host, then what any node may have.
    async fn claim(&mut self, scopes: &[Scope]) -> Result<Round, StoreError> {
        if self.node.settings.asks_for_host_affinity {
            self.batch.start();
        }
        let reserved = self.host_affinity.claim(&self.node, scopes).await?;

        let mut round = claim_scopes(&self.node, scopes, &mut self.batch).await?;
        // The next claim starts the batch, if one follows at once.
        if !round.may_have_more {
            self.batch.start();
        }

        round.claimed += reserved;
        Ok(round)
    }

    /// Returns whether queue consumers have claimed tasks since the last round, and remembers their
    /// count for the next one.
    fn update_claimed_by_hint(&mut self) -> bool {
        let claimed = self.node.demand.claimed_by_hint();
        let before = std::mem::replace(&mut self.claimed_by_hint, claimed);
        claimed != before
    }

    /// With a broker, the claimer keeps claiming only if it found tasks that no hint has announced,
    /// or if a queue has more tasks than hints are published for.
    fn next(&self, round: &Round, hints_claim: bool) -> Next {
        let has_unhinted_work =
            round.claimed > 0 && (!hints_claim || self.serves_backlogged_queue());

        if self.node.engine().is_broker_up() && !has_unhinted_work {
            return Next::LeaveToHints;
        }
        if round.may_have_more {
            return Next::ClaimAgain;
        }
        Next::WaitForWork
    }

    /// How long to wait before the next poll.
    async fn poll_interval(&mut self, claimed: usize) -> Duration {
        if claimed > 0 {
            self.pace.found();
            return self.pace.idle(random::unit());
        }

        // A short wait is not worth a query.
        let due = if self.pace.is_quick() {
            None
        } else {
            self.until_next_due().await
        };
        self.pace.idle_until(due, random::unit())
    }

    /// How long until the next task for this node is due, by the store's clock.
    async fn until_next_due(&self) -> Option<Duration> {
        let draining = &self.node.shutdown.draining;
        draining
            .run_until_cancelled(next_due(&self.node))
            .await
            .flatten()
    }

    /// Waits for a hint, or for a slot in a scope that was full, but not longer than `wait`.
    ///
    /// If the round has left nothing that could be claimed, tasks that a hint names are claimed by
    /// their ids and the wait continues. Otherwise a hint is a reason to poll.
    async fn wait_for_work(
        &mut self,
        wait: Duration,
        full: &[Scope],
        can_claim_by_id: bool,
    ) -> Result<(), StoreError> {
        let node = Arc::clone(&self.node);
        let mut until = Instant::now() + wait;

        loop {
            // In this order: a node that drains must not claim because of a hint.
            let notified = tokio::select! {
                biased;
                () = node.shutdown.draining.cancelled() => return Ok(()),
                () = slot_in(&node, full) => return Ok(()),
                () = tokio::time::sleep_until(until) => return Ok(()),
                tasks = node.engine().hinted() => tasks,
            };

            if !can_claim_by_id {
                return Ok(());
            }

            match claim_notified(&node, notified).await? {
                Notified::Claimed(0) => {}
                Notified::Claimed(_) => {
                    // However many hints arrive, the next poll is not put off.
                    self.pace.found();
                    until = until.min(Instant::now() + self.pace.idle(random::unit()));
                }
                Notified::NeedsPoll => return Ok(()),
            }
        }
    }

    /// Waits until the broker is down, a refused hint can be served, a queue is backlogged, or the
    /// next look is due.
    async fn wait_below_hints(&self) {
        let node = &self.node;
        // No hint announces a task that is reserved for this host.
        let interval = if node.settings.asks_for_host_affinity {
            host_affinity::INTERVAL
        } else {
            INTERVAL_BELOW_HINTS
        };
        let jitter = 0.75 + random::unit() * 0.5;

        // Each branch leads to the same look, so it does not matter which is first.
        tokio::select! {
            () = node.shutdown.draining.cancelled() => {}
            () = broker_down(node) => {}
            () = slot_for_refused(node) => {}
            () = node.engine().wakeups().wait_for_backlog() => {}
            () = tokio::time::sleep(interval.mul_f64(jitter)) => {}
        }
    }

    async fn wait_after(&self, error: &StoreError) {
        tracing::warn!(%error, "claim failed; retrying");
        retry_wait(&self.node, error).await;
    }
}

/// Waits before a claim is retried. A node that was declared dead registers again in the meantime.
pub(crate) async fn retry_wait(node: &Node, error: &StoreError) {
    if *error == StoreError::NodeLost {
        node.engine().wakeups().notify_leases();
    }

    let jitter = 0.5 + random::unit();
    // A drain does not wait for the store to recover.
    tokio::select! {
        () = node.shutdown.draining.cancelled() => {}
        () = tokio::time::sleep(RETRY_AFTER.mul_f64(jitter)) => {}
    }
}

/// Waits for a slot in one of these scopes. Slots elsewhere become free all the time and are no
/// reason to poll for a few tasks at once.
async fn slot_in(node: &Node, full: &[Scope]) {
    let has_slot = || full.iter().any(|scope| node.in_flight().room(scope) > 0);
    while !has_slot() {
        node.wakeups.wait_in_claimer().await;
    }
}

/// Waits for a slot for a task whose hint was refused.
async fn slot_for_refused(node: &Node) {
    let has_slot = || {
        let refused = node.demand.refused();
        let in_flight = node.in_flight();
        refused
            .iter()
            .any(|(queue, task_type)| in_flight.slots().room_for(queue, task_type) == Room::Free)
    };

    while !has_slot() {
        node.wakeups.wait_in_claimer().await;
    }
}

async fn broker_down(node: &Node) {
    match node.engine().broker() {
        Some(broker) => drop(broker.state_after(&BrokerState::Up).await),
        None => std::future::pending().await,
    }
}

async fn next_due(node: &Node) -> Option<Duration> {
    let mut queues = BTreeSet::new();
    let mut task_types = BTreeSet::new();
    for scope in node.in_flight().open_scopes() {
        queues.extend(scope.queues);
        task_types.extend(scope.task_types);
    }

    let queues: Vec<QueueName> = queues.into_iter().collect();
    let task_types: Vec<String> = task_types.into_iter().collect();
    let engine = node.engine();
    let timeout = claim_timeout(&node.settings);

    let due = engine.queues().next_due_at(&queues, &task_types);
    let due = within(timeout, due).await.ok()??;
    let now = within(timeout, engine.reads().now()).await.ok()?;
    Some(Duration::from_micros(due.micros_since(now)))
}

#[cfg(test)]
mod tests;
