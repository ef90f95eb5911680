//! The claimer: asks the store for as much as there is room for, and waits when there is nothing.

use std::pin::pin;
use std::sync::{Arc, atomic::Ordering};
use std::task::Poll;
use std::time::Duration;

use longhaul_domain::{
    StoreError, Task, bounds,
    contract::{broker::BrokerState, store::ClaimRequest},
};
use longhaul_engine::{
    desk::{StopReason, Taken},
    pace::Pace,
    slots::Scope,
};
use tokio::time::Instant;

use super::{
    Inner, executor,
    kept::{self, Kept},
    named,
};
use crate::{
    patience::{for_claim, within},
    random,
};

/// How long a claimer rests after the store refused it.
pub(super) const REST: Duration = Duration::from_millis(500);
/// How long a queue whose portion brought nothing is not asked for it again: most queues are empty while one is full.
const PORTION_REST: Duration = Duration::from_millis(100);
/// How often it looks while bells come over the broker: a net below them.
const BELOW_THE_BELLS: Duration = Duration::from_secs(5);

pub(super) async fn run(inner: Arc<Inner>) {
    let mut pace = Pace::new(inner.settings.poll);
    let mut brought = 0;
    // Whether tasks wait that there was no room for: then each queue is asked for its portion first.
    let mut is_behind = false;
    let mut empty = EmptyPortions::default();
    let mut kept = Kept::default();
    let mut in_hand = InHand::new(&inner);
    while !inner.draining.is_cancelled() {
        is_behind |= has_backlog(&inner);
        let (scopes, full) = {
            let desk = inner.desk();
            let portions = if is_behind {
                empty.leave_out(desk.portions())
            } else {
                Vec::new()
            };
            ([portions, desk.scopes()].concat(), desk.full_scopes())
        };
        if scopes.is_empty() {
            in_hand.start();
            tokio::select! {
                () = inner.draining.cancelled() => return,
                () = inner.rooms[0].notified() => continue,
            }
        }
        let owed = inner.owed_claims();
        let look = look(&inner, &scopes, &mut kept, &mut in_hand).await;
        is_behind = matches!(look, Ok(Look { is_full: true, .. }));
        if let Ok(look) = &look {
            empty.note(&look.empty);
            // What nobody was asked for, or may have more of, is still owed.
            let is_settled = |queue: &str, kind: &str| {
                look.emptied.iter().any(|scope| scope.serves(queue, kind))
            };
            inner.owed().extend(
                owed.into_iter()
                    .filter(|(queue, kind)| !is_settled(queue, kind)),
            );
        }
        // Work that no bell has come for is a reason to go on as if there were no broker, and so is a queue in which more
        // waits than bells are rung for.
        let brought_before = std::mem::replace(&mut brought, inner.brought.load(Ordering::Relaxed));
        if let Ok(look) = &look
            && inner.engine().is_broker_up()
            && (look.claimed == 0 || (brought != brought_before && !has_backlog(&inner)))
        {
            pace.found();
            in_hand.start();
            rest_below_bells(&inner).await;
            continue;
        }
        let rested = match look {
            Ok(Look { is_full: true, .. }) => {
                pace.found();
                Ok(())
            }
            Ok(Look {
                claimed, left_out, ..
            }) => {
                let wait = if claimed > 0 {
                    pace.found();
                    pace.idle(random::unit())
                } else {
                    let due = if pace.is_quick() {
                        None
                    } else {
                        until_next_due(&inner).await
                    };
                    pace.idle_until(due, random::unit())
                };
                rest(&inner, &mut pace, wait, &full, left_out).await
            }
            Err(error) => Err(error),
        };
        if let Err(error) = rested {
            tracing::warn!(%error, "claiming failed and goes on soon");
            if error == StoreError::NodeLost {
                inner.engine().look_at_leases.notify_one();
            }
            tokio::select! {
                () = inner.draining.cancelled() => {}
                () = tokio::time::sleep(REST.mul_f64(0.5 + random::unit())) => {}
            }
        }
    }
}

/// The portions that brought nothing lately.
#[derive(Debug, Default)]
struct EmptyPortions(Vec<(Scope, Instant)>);

impl EmptyPortions {
    fn note(&mut self, empty: &[Scope]) {
        let portions = empty.iter().filter(|scope| scope.is_portion());
        self.0
            .extend(portions.map(|scope| (scope.clone(), Instant::now())));
    }

    fn leave_out(&mut self, mut portions: Vec<Scope>) -> Vec<Scope> {
        self.0.retain(|(_, at)| at.elapsed() < PORTION_REST);
        portions.retain(|portion| self.0.iter().all(|(scope, _)| scope != portion));
        portions
    }
}

/// Asks for what is kept for this host, then for what is anybody's.
async fn look(
    inner: &Arc<Inner>,
    scopes: &[Scope],
    kept: &mut Kept,
    in_hand: &mut InHand,
) -> Result<Look, StoreError> {
    if inner.settings.asks_for_kept {
        in_hand.start();
    }
    let own = kept.claim(inner, scopes).await?;
    let look = claim_each(inner, scopes, in_hand).await?;
    if !look.is_full {
        in_hand.start();
    }
    Ok(Look {
        claimed: own + look.claimed,
        ..look
    })
}

/// What one look at the store brought.
pub(super) struct Look {
    pub(super) claimed: usize,
    /// Some scope got as much as was asked for: there may be more.
    is_full: bool,
    /// The scopes that nothing is left in.
    emptied: Vec<Scope>,
    /// Those of them that there was nothing in.
    empty: Vec<Scope>,
    /// Some scope was not asked for, because there was no room left.
    left_out: bool,
}

/// Asks for as much as there is room for in each scope, and starts what comes. What comes after the drain has begun is
/// handed back.
pub(super) async fn claim_all(inner: &Arc<Inner>, scopes: &[Scope]) -> Result<Look, StoreError> {
    let mut in_hand = InHand::new(inner);
    let look = claim_each(inner, scopes, &mut in_hand).await;
    in_hand.start();
    look
}

/// The same, but what the last claim brought is left in hand.
async fn claim_each(
    inner: &Arc<Inner>,
    scopes: &[Scope],
    in_hand: &mut InHand,
) -> Result<Look, StoreError> {
    let (mut claimed, mut is_full, mut left_out) = (0, false, false);
    let (mut emptied, mut empty) = (Vec::new(), Vec::new());
    let store = &inner.engine().store;
    for scope in scopes {
        let ask = |request| async move { store.claim_tasks(&request).await };
        let filled = fill_meanwhile(inner, scope, in_hand, ask).await?;
        let Some(Filled { asked_for, started }) = filled else {
            left_out = true;
            continue;
        };
        claimed += started;
        if started == 0 {
            empty.push(scope.clone());
        }
        match started == asked_for {
            true => is_full = true,
            false => emptied.push(scope.clone()),
        }
    }
    Ok(Look {
        claimed,
        is_full,
        emptied,
        empty,
        left_out,
    })
}

/// What a claim for one scope brought.
pub(super) struct Filled {
    asked_for: usize,
    pub(super) started: usize,
}

/// Asks for as much as there is room for in the scope, and starts what comes; nothing if there is no room.
pub(super) async fn fill<A>(
    inner: &Arc<Inner>,
    scope: &Scope,
    ask: impl FnOnce(ClaimRequest) -> A,
) -> Result<Option<Filled>, StoreError>
where
    A: Future<Output = Result<Vec<Task>, StoreError>>,
{
    let mut in_hand = InHand::new(inner);
    let filled = fill_meanwhile(inner, scope, &mut in_hand, ask).await;
    in_hand.start();
    filled
}

/// The same, but what comes is left in hand, and what is there is started while the store works. From the look at the room until all
/// that came is in hand nobody else takes a slot: two would take the same one.
async fn fill_meanwhile<A>(
    inner: &Arc<Inner>,
    scope: &Scope,
    in_hand: &mut InHand,
    ask: impl FnOnce(ClaimRequest) -> A,
) -> Result<Option<Filled>, StoreError>
where
    A: Future<Output = Result<Vec<Task>, StoreError>>,
{
    let _alone = match inner.asking.try_write() {
        Ok(alone) => alone,
        Err(_) => {
            in_hand.start();
            inner.asking.write().await
        }
    };
    let _asking = Asking::new(inner);
    let limit = inner.desk().room(scope).min(bounds::CLAIM_BATCH);
    if limit == 0 || inner.draining.is_cancelled() {
        return Ok(None);
    }
    let request = ClaimRequest {
        node_id: inner.node(),
        host: inner.settings.host.clone(),
        queues: scope.queues.clone(),
        task_types: scope.task_types.clone(),
        limit,
    };
    let mut asked = pin!(within(for_claim(&inner.settings), ask(request)));
    // Polled once, the question is on its way.
    let answer = futures::poll!(asked.as_mut());
    in_hand.start();
    let tasks = match answer {
        Poll::Ready(answer) => answer?,
        Poll::Pending => asked.await?,
    };
    let started = tasks.len();
    in_hand.take(tasks);
    Ok(Some(Filled {
        asked_for: limit,
        started,
    }))
}

/// While this lives, the store has been asked.
struct Asking<'a>(&'a Inner);

impl<'a> Asking<'a> {
    fn new(inner: &'a Inner) -> Self {
        inner.desk().asking(true);
        Self(inner)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.desk().asking(false);
    }
}

/// Takes what was claimed in hand, and starts it.
pub(super) fn start(inner: &Arc<Inner>, tasks: Vec<Task>) {
    let mut in_hand = InHand::new(inner);
    in_hand.take(tasks);
    in_hand.start();
}

/// Claimed tasks that have their slots and are about to be started. Those that never are go back when this is dropped.
struct InHand {
    inner: Arc<Inner>,
    tasks: Vec<(Task, Taken)>,
}

impl InHand {
    fn new(inner: &Arc<Inner>) -> Self {
        Self {
            inner: Arc::clone(inner),
            tasks: Vec::new(),
        }
    }

    fn take(&mut self, tasks: Vec<Task>) {
        // A task that was changed by a clock that was ahead is dated by that; the others by the store's.
        if let Some(claimed_at) = tasks.iter().filter_map(|task| task.last_attempt_at).min() {
            self.inner.engine().store_time.note(claimed_at);
        }
        for task in tasks {
            self.inner.engine().metrics.claimed(&task);
            let taken = self.inner.desk().take(&task);
            let Some(taken) = taken else { continue };
            if let Some(older) = taken.replaces {
                self.inner.ask_to_stop(&older, StopReason::Lost);
            }
            self.tasks.push((task, taken));
        }
    }

    /// What a heartbeat asked to stop meanwhile is asked again by the next one.
    fn start(&mut self) {
        for (task, taken) in std::mem::take(&mut self.tasks) {
            if task.node_id != Some(self.inner.node()) {
                // The node was declared dead meanwhile: others run what it had.
                self.inner.desk().drop_lease(&taken.lease);
                self.inner.room_freed();
            } else if self.inner.draining.is_cancelled() {
                executor::hand_back(&self.inner, &task, taken.lease, taken.info);
            } else {
                executor::start(&self.inner, task, taken.lease, taken.info);
            }
        }
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        for (task, taken) in self.tasks.drain(..) {
            executor::hand_back(&self.inner, &task, taken.lease, taken.info);
        }
    }
}

/// Waits for a bell, or for room in a scope that was full at the last look, at most so long. If that look has left nothing that
/// could be claimed, tasks that the bell names are claimed at once, and the rest goes on; else a bell is a reason to look.
async fn rest(
    inner: &Arc<Inner>,
    pace: &mut Pace,
    most: Duration,
    full: &[Scope],
    left_out: bool,
) -> Result<(), StoreError> {
    let mut until = Instant::now() + most;
    loop {
        let rung_for = tokio::select! {
            biased;
            () = inner.draining.cancelled() => return Ok(()),
            () = room_in(inner, full) => return Ok(()),
            () = tokio::time::sleep_until(until) => return Ok(()),
            rung_for = inner.engine().doorbell.heard() => rung_for,
        };
        if left_out || !full.is_empty() {
            return Ok(());
        }
        match named::answer(inner, rung_for).await? {
            Some(0) => {}
            Some(_) => {
                // The look that is due is not put off, however many rings there are.
                pace.found();
                until = until.min(Instant::now() + pace.idle(random::unit()));
            }
            None => return Ok(()),
        }
    }
}

/// Other slots become free all the time; they are no reason to ask for a few tasks at once.
async fn room_in(inner: &Inner, full: &[Scope]) {
    while full.iter().all(|scope| inner.desk().room(scope) == 0) {
        inner.rooms[0].notified().await;
    }
}

/// Whether a queue that is served here is held.
fn has_backlog(inner: &Inner) -> bool {
    let desk = inner.desk();
    desk.slots()
        .queues()
        .any(|queue| inner.engine().is_held(queue))
}

/// Waits until the broker is away, until there is room for what was turned down, until a queue is held, or until a look is
/// due anyway.
async fn rest_below_bells(inner: &Inner) {
    // Nobody rings for tasks that are kept for this host.
    let look_again = if inner.settings.asks_for_kept {
        kept::EVERY
    } else {
        BELOW_THE_BELLS
    };
    let is_down = async {
        match &inner.engine().broker {
            Some(broker) => drop(broker.state_after(&BrokerState::Up).await),
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = inner.draining.cancelled() => {}
        () = is_down => {}
        () = room_for_owed(inner) => {}
        () = inner.engine().look_at_backlog.notified() => {}
        () = tokio::time::sleep(look_again.mul_f64(0.75 + random::unit() * 0.5)) => {}
    }
}

async fn room_for_owed(inner: &Inner) {
    loop {
        let owed = inner.owed().clone();
        if owed
            .iter()
            .any(|(queue, kind)| inner.desk().slots().has_room(queue, kind) == Some(true))
        {
            return;
        }
        inner.rooms[0].notified().await;
    }
}

/// How long until the next task of this worker is due by the store's clock.
async fn until_next_due(inner: &Inner) -> Option<Duration> {
    inner
        .draining
        .run_until_cancelled(ask_for_next_due(inner))
        .await?
}

async fn ask_for_next_due(inner: &Inner) -> Option<Duration> {
    let (mut queues, mut types) = (Vec::new(), Vec::new());
    for scope in inner.desk().scopes() {
        queues.extend(scope.queues);
        types.extend(scope.task_types);
    }
    queues.sort();
    queues.dedup();
    types.sort();
    types.dedup();
    let (store, most) = (&inner.engine().store, for_claim(&inner.settings));
    let due = within(most, store.next_due_at(&queues, &types))
        .await
        .ok()??;
    let now = within(most, store.now()).await.ok()?;
    Some(Duration::from_micros(due.micros_since(now)))
}

#[cfg(test)]
mod tests {
    use longhaul_engine::{
        Desk,
        slots::{QueueSlots, SlotPlan, TypeSlots},
    };

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_portion_that_brought_nothing_is_left_out_for_a_while() {
        let queues = ["full", "empty"].map(QueueSlots::shared).to_vec();
        let types = vec![TypeSlots {
            name: "t".to_owned(),
            at_most: None,
            resources: Vec::new(),
        }];
        let desk = Desk::new(SlotPlan {
            total: 8,
            queues,
            types,
            ..SlotPlan::default()
        });
        let (portions, shared) = (desk.portions(), desk.scopes());
        assert_eq!((portions.len(), shared.len()), (2, 1));
        let mut empty = EmptyPortions::default();
        empty.note(&[portions[1].clone(), shared[0].clone()]);
        assert_eq!(empty.leave_out(portions.clone()), portions[..1]);
        assert_eq!(
            empty.leave_out(shared.clone()),
            shared,
            "only portions rest"
        );
        tokio::time::advance(PORTION_REST).await;
        assert_eq!(empty.leave_out(portions.clone()), portions);
    }
}
