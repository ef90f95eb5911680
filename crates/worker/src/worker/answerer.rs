//! The answerer of a queue: hears its bells from the broker and claims, by their ids, the tasks that they ring for.
//!
//! It takes no more bells than there are free slots, claims for all that are there with one statement, and lets the
//! broker forget them once that is committed. A bell is only a hint: what it does not bring about, the ringer or the
//! claimer will. Bells that there is no slot for go back, so that nothing waits behind a busy node. A held queue is left to the
//! claimer: in the store's order whoever has waited too long comes first, and a bell cannot change its place.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, MutexGuard, PoisonError, atomic::Ordering};
use std::time::Duration;

use longhaul_domain::{
    StoreError, TaskId, bounds,
    contract::{
        Broker,
        broker::{Bell, Bells, Delivery},
    },
};
use longhaul_engine::desk::ForBell;
use tokio::{task::JoinSet, time::Instant};

use super::{
    Inner, claimer,
    named::{self, HeldSlots},
};
use crate::random;

/// How long bells may wait here for a slot before they go back: quick tasks free one within this.
const FOR_A_SLOT: Duration = Duration::from_millis(20);
/// How often a queue that is held is asked about.
const HELD: Duration = Duration::from_millis(50);
/// Bells that come earlier than this wait in the broker, others here. In milliseconds: the shortest wait that it knows.
const EARLY_MS: u128 = 250;
/// The longest wait that it knows. What is due later is found by the ringer.
const LATEST_MS: u128 = 3_600_000;
/// Bells that wait here until they are due.
const EARLY_BELLS: usize = 1_000;
/// After it a task is looked for again that was rung for ahead of its commit; so much a due one may be late.
const A_MOMENT: Duration = Duration::from_millis(1);
/// Bells of types that are not served here and are passed on within a second. Others are rung for again by the ringer,
/// less and less often: it may be that nobody serves them.
const PASSED_ON: usize = 50;
/// How long after its task could be claimed a bell is passed on, in milliseconds.
const PASSED_ON_FOR_MS: u64 = 2_000;
/// Queues and types that a node remembers to have turned down.
const OWED: usize = 1_000;

/// Starts an answerer for each queue that is served, if there is a broker.
pub(super) fn start_all(inner: &Arc<Inner>, loops: &mut JoinSet<()>) {
    let Some(broker) = &inner.engine().broker else {
        return;
    };
    let (queues, has_types): (Vec<String>, bool) = {
        let desk = inner.desk();
        let slots = desk.slots();
        (
            slots.queues().map(str::to_owned).collect(),
            slots.task_types().next().is_some(),
        )
    };
    if !has_types || inner.settings.slots == 0 {
        return;
    }
    for (index, queue) in queues.into_iter().enumerate() {
        let answerer = Answerer {
            bells: broker.bells(&queue),
            inner: Arc::clone(inner),
            broker: Arc::clone(broker),
            queue,
            place: index + 1,
            in_hand: Vec::new(),
            early: BTreeMap::new(),
            passed_on: (Instant::now(), 0),
            starving: None,
        };
        loops.spawn(answerer.run());
    }
}

struct Answerer {
    inner: Arc<Inner>,
    broker: Arc<dyn Broker>,
    bells: Box<dyn Bells>,
    queue: String,
    /// Which of the worker's notices of room is its own.
    place: usize,
    /// Heard and not answered, for want of a slot.
    in_hand: Vec<Delivery>,
    /// Answered and a moment too early.
    early: BTreeMap<(Instant, TaskId), Bell>,
    /// Bells that were passed on since then.
    passed_on: (Instant, usize),
    starving: Option<Starving>,
}

impl Answerer {
    async fn run(mut self) {
        self.declare().await;
        while !self.inner.draining.is_cancelled() {
            if self.inner.engine().is_held(&self.queue) {
                self.stand_aside().await;
                continue;
            }
            let most = self
                .inner
                .desk()
                .room_in_queue(&self.queue)
                .min(bounds::CLAIM_BATCH);
            if most == 0 {
                self.wait_for_room().await;
                continue;
            }
            if self.gives_way().await {
                continue;
            }
            if let Some(heard) = self.hear(most).await
                && let Err(error) = self.answer(heard).await
            {
                self.rest(&error).await;
            }
        }
        // What is not answered goes to others.
        self.give_away().await;
    }

    /// Makes the queue known to the broker, however long that takes. Meanwhile the claimer works.
    async fn declare(&mut self) {
        while let Err(error) = self.broker.declare(std::slice::from_ref(&self.queue)).await {
            tracing::warn!(%error, queue = self.queue, "a queue cannot be declared yet");
            let state = self.broker.state();
            tokio::select! {
                () = self.inner.draining.cancelled() => return,
                _ = self.broker.state_after(&state) => {}
                () = tokio::time::sleep(claimer::REST.mul_f64(4.0 + random::unit())) => {}
            }
        }
    }

    /// Gives all bells back: those in hand, and, rung anew, those that were answered too early.
    async fn give_away(&mut self) {
        self.in_hand.clear();
        self.bells.pause().await;
        let early: Vec<Bell> = std::mem::take(&mut self.early).into_values().collect();
        if !early.is_empty() {
            self.broker.ring(&early).await;
        }
    }

    /// Leaves the queue to the claimer for as long as it is held. Bells go to nodes that have not heard of that.
    async fn stand_aside(&mut self) {
        self.in_hand.clear();
        self.bells.pause().await;
        let inner = Arc::clone(&self.inner);
        inner.engine().look_at_backlog.notify_one();
        while inner.engine().is_held(&self.queue) {
            tokio::select! {
                () = inner.draining.cancelled() => return,
                () = tokio::time::sleep(HELD) => {}
            }
        }
    }

    /// Waits for a slot, a moment with the bells in hand, then without.
    async fn wait_for_room(&mut self) {
        let (inner, place) = (Arc::clone(&self.inner), self.place);
        let room = async {
            tokio::select! {
                () = inner.draining.cancelled() => {}
                () = inner.rooms[place].notified() => {}
            }
        };
        tokio::pin!(room);
        if tokio::time::timeout(FOR_A_SLOT, &mut room).await.is_err() {
            self.starving
                .get_or_insert_with(|| Starving::new(&self.inner));
            self.give_away().await;
            room.await;
        }
    }

    /// A queue that has its portion of the slots lets those go first that wait for theirs, for a moment: they may have no
    /// bells at all.
    async fn gives_way(&mut self) -> bool {
        let others =
            self.inner.starving.load(Ordering::Relaxed) > usize::from(self.starving.is_some());
        if !others || !self.inner.desk().slots().has_its_portion(&self.queue) {
            return false;
        }
        tokio::time::sleep(FOR_A_SLOT).await;
        self.inner.desk().room_in_queue(&self.queue) == 0
    }

    /// Waits for bells, or for the moment of one that came early. Nothing when the drain has begun.
    async fn hear(&mut self, most: usize) -> Option<Vec<Delivery>> {
        if !self.in_hand.is_empty() {
            let count = self.in_hand.len().min(most);
            return Some(self.in_hand.drain(..count).collect());
        }
        let first = self.early.first_key_value().map(|((moment, _), _)| *moment);
        let heard = tokio::select! {
            biased;
            () = self.inner.draining.cancelled() => return None,
            () = tokio::time::sleep_until(first.unwrap_or_else(Instant::now)), if first.is_some() => Vec::new(),
            heard = self.bells.next(most) => heard,
            () = tokio::time::sleep(FOR_A_SLOT), if self.starving.is_some() => Vec::new(),
        };
        self.starving = None;
        Some(heard)
    }

    /// Claims what there are slots for, starts it, and has the broker forget the bells.
    async fn answer(&mut self, heard: Vec<Delivery>) -> Result<(), StoreError> {
        let mut sorted = self.sort(heard).await;
        let ids: BTreeSet<TaskId> = sorted
            .bells
            .iter()
            .map(|bell| bell.task_id)
            .take(bounds::CLAIM_BATCH)
            .collect();
        let claimed = match ids.is_empty() {
            true => Ok(Vec::new()),
            false => named::claim(&self.inner, ids).await,
        };
        // The broker has the others still.
        let claimed = claimed
            .inspect_err(|_| self.keep(Instant::now(), std::mem::take(&mut sorted.early)))?;
        self.inner
            .brought
            .fetch_add(claimed.len() as u64, Ordering::Relaxed);
        let taken: HashSet<TaskId> = claimed.iter().map(|task| task.id).collect();
        named::start(&self.inner, claimed);
        drop(sorted.slots);
        self.early.retain(|(_, id), _| !taken.contains(id));
        self.bells.answered(&sorted.answered).await;
        self.ring_when_due(
            sorted
                .bells
                .into_iter()
                .filter(|bell| !taken.contains(&bell.task_id)),
        )
        .await;
        self.pass_on(sorted.not_served).await;
        Ok(())
    }

    /// Holds a slot for each bell that there is one for.
    async fn sort(&mut self, heard: Vec<Delivery>) -> Sorted {
        let inner = Arc::clone(&self.inner);
        let _shared = inner.asking.read().await;
        let mut sorted = Sorted {
            slots: HeldSlots::new(&inner),
            bells: Vec::new(),
            answered: Vec::with_capacity(heard.len()),
            early: Vec::new(),
            not_served: Vec::new(),
        };
        let mut turned_down = Vec::new();
        let mut desk = inner.desk();
        for Delivery { bell, tag } in heard {
            match sorted.slots.hold(&mut desk, &bell.queue, &bell.task_type) {
                ForBell::Held => sorted.bells.push(bell),
                ForBell::NotServed => sorted.not_served.push(bell),
                ForBell::TypeFull => turned_down.push(bell),
                ForBell::QueueFull => {
                    self.in_hand.push(Delivery { bell, tag });
                    continue;
                }
            }
            sorted.answered.push(tag);
        }
        let (now, mut full) = (Instant::now(), Vec::new());
        while let Some(entry) = self
            .early
            .first_entry()
            .filter(|entry| entry.key().0 <= now)
        {
            let bell = entry.remove();
            match sorted.slots.hold(&mut desk, &bell.queue, &bell.task_type) {
                ForBell::Held => {
                    sorted.early.push(bell.clone());
                    sorted.bells.push(bell);
                }
                ForBell::TypeFull => turned_down.push(bell),
                ForBell::QueueFull | ForBell::NotServed => full.push(bell),
            }
        }
        drop(desk);
        self.keep(now + A_MOMENT, full);
        for mut bell in turned_down {
            // The claimer would not find it before its commit.
            match bell.looks.checked_sub(1) {
                Some(looks) => {
                    bell.looks = looks;
                    self.keep(now + A_MOMENT, [bell]);
                }
                None => inner.owe(&bell),
            }
        }
        sorted
    }

    /// Keeps bells until a moment, as many as there is room for.
    fn keep(&mut self, until: Instant, bells: impl IntoIterator<Item = Bell>) {
        let room = EARLY_BELLS.saturating_sub(self.early.len());
        self.early.extend(
            bells
                .into_iter()
                .take(room)
                .map(|bell| ((until, bell.task_id), bell)),
        );
    }

    /// Bells that brought nothing because their tasks are not committed or not due yet ring again: here, if that is soon.
    async fn ring_when_due(&mut self, bells: impl Iterator<Item = Bell>) {
        let (now, mut later) = (Instant::now(), Vec::new());
        for mut bell in bells {
            let early = self.inner.engine().store_time.until(bell.due_at);
            match early.as_millis() {
                0 => {
                    if let Some(looks) = bell.looks.checked_sub(1) {
                        bell.looks = looks;
                        self.keep(now + A_MOMENT, [bell]);
                    }
                }
                1..EARLY_MS => self.keep(now + early + A_MOMENT, [bell]),
                ms @ EARLY_MS..=LATEST_MS => later.push((bell, u64::try_from(ms).unwrap_or(0))),
                _ => {}
            }
        }
        if !later.is_empty() {
            self.broker.ring_later(&later).await;
        }
    }

    /// Another node may serve these. A bell that has been under way for long is the ringer's to ring again: nobody may serve
    /// it, or its task may be gone.
    async fn pass_on(&mut self, mut bells: Vec<Bell>) {
        let now = self.inner.engine().store_time.now();
        bells.retain(|bell| {
            now.is_some_and(|now| {
                now < bell.submitted_at.max(bell.due_at).plus_ms(PASSED_ON_FOR_MS)
            })
        });
        if bells.is_empty() {
            return;
        }
        if self.passed_on.0.elapsed() > Duration::from_secs(1) {
            self.passed_on = (Instant::now(), 0);
        }
        let room = PASSED_ON.saturating_sub(self.passed_on.1);
        let rest_ms = u64::try_from(EARLY_MS).unwrap_or(0);
        let later: Vec<(Bell, u64)> = bells
            .into_iter()
            .take(room)
            .map(|bell| (bell, rest_ms))
            .collect();
        self.passed_on.1 += later.len();
        if !later.is_empty() {
            self.broker.ring_later(&later).await;
        }
    }

    /// The store did not claim: the bells go to whoever can.
    async fn rest(&mut self, error: &StoreError) {
        tracing::warn!(%error, queue = self.queue, "bells cannot be answered and go back");
        if *error == StoreError::NodeLost {
            self.inner.engine().look_at_leases.notify_one();
        }
        self.give_away().await;
        tokio::select! {
            () = self.inner.draining.cancelled() => {}
            () = tokio::time::sleep(claimer::REST.mul_f64(0.5 + random::unit())) => {}
        }
    }
}

/// While this lives, a queue waits for its portion.
struct Starving(Arc<Inner>);

impl Starving {
    fn new(inner: &Arc<Inner>) -> Self {
        inner.starving.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(inner))
    }
}

impl Drop for Starving {
    fn drop(&mut self) {
        self.0.starving.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bells by what is to be done about them.
struct Sorted {
    slots: HeldSlots,
    /// Those with a slot.
    bells: Vec<Bell>,
    /// The tags of all that are done with once the claim is.
    answered: Vec<u64>,
    /// Those of the bells with slots that the broker has no more.
    early: Vec<Bell>,
    not_served: Vec<Bell>,
}

impl Inner {
    pub(super) fn owed(&self) -> MutexGuard<'_, BTreeSet<(String, String)>> {
        self.owed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes out what was turned down.
    pub(super) fn owed_claims(&self) -> BTreeSet<(String, String)> {
        std::mem::take(&mut *self.owed())
    }

    /// A bell was turned down because its type has no slot left.
    fn owe(&self, bell: &Bell) {
        let mut owed = self.owed();
        if owed.len() < OWED {
            owed.insert((bell.queue.clone(), bell.task_type.clone()));
        }
        drop(owed);
        self.rooms[0].notify_one();
    }
}
