//! The claimer: asks the store for as many tasks as there are free slots, and waits when there is
//! nothing to claim.
//!
//! While hints arrive over a broker, the queue consumers claim and the claimer only looks now and
//! then for what the hints have missed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{
    StoreError, TaskId, bounds,
    contract::{broker::BrokerState, notifier::HintedTask},
};
use longhaul_sdk::random;
use tokio::time::Instant;

use crate::{
    admission::{ClaimFor, ReservedSlots, ScopeClaim},
    claimed::{self, ClaimedTasks},
    deadlines::{claim_timeout, within},
    demand::QueueAndType,
    host_affinity::{self, HostAffinity},
    in_flight::HintSlot,
    node::Node,
    pace::Pace,
    slots::Scope,
};

/// How long a loop that claims waits after the store refused a claim.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(500);
/// How long an empty fair share is not asked for again. Most queues are empty while one is full.
const EMPTY_FAIR_SHARE_REST: Duration = Duration::from_millis(100);
/// How often the claimer looks while hints arrive over the broker.
const INTERVAL_BELOW_HINTS: Duration = Duration::from_secs(5);

/// Runs until the drain.
pub(crate) async fn run(node: Arc<Node>) {
    let mut claimer = Claimer::new(node);

    while !claimer.node.shutdown.is_draining() {
        let scopes = claimer.scopes();
        if scopes.with_room.is_empty() {
            claimer.wait_for_slot().await;
            continue;
        }

        if let Err(error) = claimer.round(&scopes).await {
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
    /// Whether more tasks wait than there were slots for. Then every queue gets its fair share of
    /// the slots first.
    is_behind: bool,
    /// The count of tasks claimed by hints, as of the last round.
    claimed_by_hint: u64,
}

/// What the claimer asks for in one round.
struct Scopes {
    with_room: Vec<Scope>,
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
            is_behind: false,
            claimed_by_hint: 0,
            node,
        }
    }

    /// The scopes with free slots, fair shares first if tasks wait, and the scopes without.
    fn scopes(&mut self) -> Scopes {
        self.is_behind |= self.has_backlog();
        let in_flight = self.node.in_flight();

        let mut with_room = Vec::new();
        if self.is_behind {
            with_room = self.empty_fair_shares.leave_out(in_flight.fair_shares());
        }
        with_room.extend(in_flight.scopes());

        Scopes {
            with_room,
            full: in_flight.full_scopes(),
        }
    }

    /// Whether a queue that this node serves is backlogged.
    fn has_backlog(&self) -> bool {
        let engine = self.node.engine();
        let in_flight = self.node.in_flight();
        let mut queues = in_flight.slots().queues();
        queues.any(|queue| engine.is_backlogged(queue))
    }

    async fn wait_for_slot(&mut self) {
        self.batch.start();
        tokio::select! {
            () = self.node.shutdown.draining.cancelled() => {}
            () = self.node.wakeups.wait_in_claimer() => {}
        }
    }

    /// One claim for each scope, and the wait that follows.
    async fn round(&mut self, scopes: &Scopes) -> Result<(), StoreError> {
        // Taken before the claim: a hint that is refused during the claim stays for the next one.
        let refused = self.node.demand.take_refused();
        let claimed = self.claim(&scopes.with_room).await;

        let hints_claim = self.have_hints_claimed();
        self.is_behind = matches!(claimed, Ok(Round { is_full: true, .. }));

        let may_wait_still = |(queue, task_type): &QueueAndType| match &claimed {
            Ok(round) => !round.settles(queue, task_type),
            // These hints are acknowledged: only the dispatcher would publish them again.
            Err(_) => true,
        };
        let refused = refused.into_iter().filter(may_wait_still);
        self.node.demand.put_back_refused(refused);

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
                let can_claim_by_id = scopes.full.is_empty() && !round.has_skipped;
                self.wait_for_work(wait, &scopes.full, can_claim_by_id)
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
        // A full round is followed by another one at once, which starts the batch.
        if !round.is_full {
            self.batch.start();
        }

        round.claimed += reserved;
        Ok(round)
    }

    /// Whether queue consumers have claimed tasks since the last round.
    fn have_hints_claimed(&mut self) -> bool {
        let claimed = self.node.demand.claimed_by_hint();
        let before = std::mem::replace(&mut self.claimed_by_hint, claimed);
        claimed != before
    }

    /// With a broker, the claimer keeps claiming only if it found tasks that no hint has announced,
    /// or if a queue has more tasks than hints are published for.
    fn next(&self, round: &Round, hints_claim: bool) -> Next {
        let has_unhinted_work = round.claimed > 0 && (!hints_claim || self.has_backlog());

        match (self.node.engine().is_broker_up(), round.is_full) {
            (true, _) if !has_unhinted_work => Next::LeaveToHints,
            (_, true) => Next::ClaimAgain,
            (_, false) => Next::WaitForWork,
        }
    }

    /// How long to wait before the next poll.
    async fn poll_interval(&mut self, claimed: usize) -> Duration {
        if claimed > 0 {
            self.pace.found();
            return self.pace.idle(random::unit());
        }

        // A short wait is not worth a query.
        let due = match self.pace.is_quick() {
            true => None,
            false => self.until_next_due().await,
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
            let hinted = tokio::select! {
                biased;
                () = node.shutdown.draining.cancelled() => return Ok(()),
                () = slot_in(&node, full) => return Ok(()),
                () = tokio::time::sleep_until(until) => return Ok(()),
                hinted = node.engine().notifier.notified() => hinted,
            };

            if !can_claim_by_id {
                return Ok(());
            }

            match claim_hinted(&node, hinted).await? {
                Hinted::Claimed(0) => {}
                Hinted::Claimed(_) => {
                    // However many hints arrive, the next poll is not put off.
                    self.pace.found();
                    until = until.min(Instant::now() + self.pace.idle(random::unit()));
                }
                Hinted::NeedsPoll => return Ok(()),
            }
        }
    }

    /// Waits until the broker is down, a refused hint can be served, a queue is backlogged, or the
    /// next look is due.
    async fn wait_below_hints(&self) {
        let node = &self.node;
        // No hint announces a task that is reserved for this host.
        let interval = match node.settings.asks_for_host_affinity {
            true => host_affinity::INTERVAL,
            false => INTERVAL_BELOW_HINTS,
        };
        let jitter = 0.75 + random::unit() * 0.5;

        tokio::select! {
            () = node.shutdown.draining.cancelled() => {}
            () = broker_down(node) => {}
            () = slot_for_refused(node) => {}
            () = node.engine().wakeups.wait_for_backlog() => {}
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
        node.engine().wakeups.notify_leases();
    }

    let jitter = 0.5 + random::unit();
    tokio::select! {
        () = node.shutdown.draining.cancelled() => {}
        () = tokio::time::sleep(RETRY_AFTER.mul_f64(jitter)) => {}
    }
}

/// What claims for all scopes found.
#[derive(Debug, Default)]
pub(crate) struct Round {
    pub(crate) claimed: usize,
    /// Some scope returned as many tasks as were asked for: there may be more.
    is_full: bool,
    /// Scopes in which no task is left.
    emptied: Vec<Scope>,
    /// Scopes of these in which there was none before.
    empty: Vec<Scope>,
    /// Some scope was not asked for, because no slot was left.
    has_skipped: bool,
}

impl Round {
    fn add(&mut self, scope: &Scope, claim: Option<ScopeClaim>) {
        let Some(ScopeClaim { asked_for, claimed }) = claim else {
            self.has_skipped = true;
            return;
        };

        self.claimed += claimed;
        if claimed == 0 {
            self.empty.push(scope.clone());
        }
        match claimed == asked_for {
            true => self.is_full = true,
            false => self.emptied.push(scope.clone()),
        }
    }

    /// Whether no task of this queue and type is left.
    fn settles(&self, queue: &str, task_type: &str) -> bool {
        self.emptied
            .iter()
            .any(|scope| scope.serves(queue, task_type))
    }
}

/// Claims as many tasks as there are free slots in each scope, and adds them to the batch.
pub(crate) async fn claim_scopes(
    node: &Arc<Node>,
    scopes: &[Scope],
    batch: &mut ClaimedTasks,
) -> Result<Round, StoreError> {
    let mut round = Round::default();
    for scope in scopes {
        let claim = node.claim_scope(scope, ClaimFor::AnyHost, batch).await?;
        round.add(scope, claim);
    }

    Ok(round)
}

/// How a hint of the notifier was served.
enum Hinted {
    /// This many of its tasks were claimed. Tasks of other nodes are left out.
    Claimed(usize),
    /// The hint names no tasks, too many, or one that has no free slot.
    NeedsPoll,
}

/// Claims and starts the tasks that the hint names.
async fn claim_hinted(node: &Arc<Node>, hinted: Vec<HintedTask>) -> Result<Hinted, StoreError> {
    let is_too_many = hinted.len() > bounds::CLAIM_BATCH;
    if hinted.is_empty() || is_too_many || node.shutdown.is_draining() {
        return Ok(Hinted::NeedsPoll);
    }

    // Lives until the tasks are in flight.
    let mut slots = ReservedSlots::new(node);
    let Some(ids) = reserve_named(node, &mut slots, hinted) else {
        return Ok(Hinted::NeedsPoll);
    };
    if ids.is_empty() {
        return Ok(Hinted::Claimed(0));
    }

    let tasks = node.claim_by_id(ids).await?;
    let count = tasks.len();
    claimed::start_served(node, tasks);
    Ok(Hinted::Claimed(count))
}

/// Reserves a slot for each task that is served here. `None` if there are too few: then the order
/// of the store decides which task goes first.
fn reserve_named(
    node: &Node,
    slots: &mut ReservedSlots,
    hinted: Vec<HintedTask>,
) -> Option<BTreeSet<TaskId>> {
    let mut ids = BTreeSet::new();
    let mut in_flight = node.in_flight();

    for task in hinted {
        match slots.reserve(&mut in_flight, &task.queue, &task.task_type) {
            HintSlot::Reserved => {
                ids.insert(task.task_id);
            }
            HintSlot::NotServed => {}
            HintSlot::TypeFull | HintSlot::QueueFull => return None,
        }
    }

    Some(ids)
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
            .any(|(queue, task_type)| in_flight.slots().has_room(queue, task_type) == Some(true))
    };

    while !has_slot() {
        node.wakeups.wait_in_claimer().await;
    }
}

async fn broker_down(node: &Node) {
    match &node.engine().broker {
        Some(broker) => drop(broker.state_after(&BrokerState::Up).await),
        None => std::future::pending().await,
    }
}

async fn next_due(node: &Node) -> Option<Duration> {
    let mut queues = BTreeSet::new();
    let mut task_types = BTreeSet::new();
    for scope in node.in_flight().scopes() {
        queues.extend(scope.queues);
        task_types.extend(scope.task_types);
    }

    let queues: Vec<String> = queues.into_iter().collect();
    let task_types: Vec<String> = task_types.into_iter().collect();
    let engine = node.engine();
    let timeout = claim_timeout(&node.settings);

    let due = engine.queues().next_due_at(&queues, &task_types);
    let due = within(timeout, due).await.ok()??;
    let now = within(timeout, engine.reads().now()).await.ok()?;
    Some(Duration::from_micros(due.micros_since(now)))
}

/// Fair shares in which there was no task a moment ago.
#[derive(Debug, Default)]
struct EmptyFairShares(Vec<(Scope, Instant)>);

impl EmptyFairShares {
    fn add(&mut self, empty: &[Scope]) {
        let now = Instant::now();
        for scope in empty.iter().filter(|scope| scope.is_fair_share()) {
            self.0.push((scope.clone(), now));
        }
    }

    fn leave_out(&mut self, mut fair_shares: Vec<Scope>) -> Vec<Scope> {
        self.0
            .retain(|(_, at)| at.elapsed() < EMPTY_FAIR_SHARE_REST);
        fair_shares.retain(|fair_share| self.0.iter().all(|(scope, _)| scope != fair_share));
        fair_shares
    }
}

#[cfg(test)]
mod tests {
    use longhaul_domain::{TaskIdSequence, Timestamp, contract::broker::Hint};
    use longhaul_sdk::{Job, Registry, TypeSettings};

    use super::*;
    use crate::{
        in_flight::InFlight,
        settings::QueueSlots,
        slots::{SlotPlan, TypeSlots},
        test_node,
    };

    #[tokio::test(start_paused = true)]
    async fn an_empty_fair_share_is_left_out_for_a_while() {
        let queues = ["full", "empty"].map(QueueSlots::shared).to_vec();
        let types = vec![TypeSlots {
            name: "t".to_owned(),
            at_most: None,
            resources: Vec::new(),
        }];
        let in_flight = InFlight::new(SlotPlan {
            total: 8,
            queues,
            types,
            ..SlotPlan::default()
        });

        let fair_shares = in_flight.fair_shares();
        let shared = in_flight.scopes();
        assert_eq!((fair_shares.len(), shared.len()), (2, 1));
        let mut empty = EmptyFairShares::default();
        empty.add(&[fair_shares[1].clone(), shared[0].clone()]);
        assert_eq!(empty.leave_out(fair_shares.clone()), fair_shares[..1]);
        assert_eq!(
            empty.leave_out(shared.clone()),
            shared,
            "only fair shares are left out"
        );

        tokio::time::advance(EMPTY_FAIR_SHARE_REST).await;
        assert_eq!(empty.leave_out(fair_shares.clone()), fair_shares);
    }

    /// The acknowledged hint of a task whose type had no free slot.
    fn refused_hint() -> Hint {
        let now = Timestamp::from_micros(1);
        Hint {
            task_id: TaskIdSequence::default().next_id(now, 1),
            owner: "ann".to_owned(),
            task_type: "t".to_owned(),
            queue: "q".to_owned(),
            priority: 1,
            retry_count: 0,
            submitted_at: now,
            due_at: now,
            lookups: 0,
            correlation_id: None,
            trace_context: None,
        }
    }

    #[tokio::test]
    async fn a_refused_hint_is_remembered_when_the_claim_for_it_fails() {
        let mut registry = Registry::default();
        let run = |_: (), _: Job| async { Ok(()) };
        registry
            .register_fn("t", TypeSettings::new(), run)
            .unwrap();
        let node = test_node::unregistered(registry);
        node.demand.add_refused(&refused_hint());
        let refused = node.demand.refused();
        assert_eq!(refused.len(), 1);

        let mut claimer = Claimer::new(Arc::clone(&node));
        let scopes = claimer.scopes();
        let claimed = claimer.round(&scopes).await;
        assert_eq!(claimed, Err(StoreError::NodeLost));
        assert_eq!(node.demand.refused(), refused);
    }
}
