//! The broker of one process, for tests of whoever uses a broker: it does what the contract says and can be broken.
//!
//! Bells wait by priority, then in the order of their ringing. What is in the hands of a consumer that pauses, goes or
//! loses the broker is back in its place at once. Time is tokio's, so a test that stops the clock stops the delays.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use longhaul_domain::{
    contract::broker::{
        Bell, Bells, Broker, BrokerError, BrokerState, ProgressInbox, ProgressReport, Published,
        Signal, Signals, Traffic,
    },
    event::{OutboxMessage, Topic},
};
use tokio::{
    sync::{broadcast, watch},
    time::Instant,
};

use super::broker_consumer::{MemoryBells, MemoryInbox, MemorySignals};
use crate::names;

/// Messages of one kind that are kept: a test that makes more has lost sight of them.
const MOST_MESSAGES: usize = 1 << 20;
/// Signals that a listener may fall behind by.
const MOST_SIGNALS: usize = 1_024;

/// A broker in memory.
#[derive(Debug)]
pub struct MemoryBroker {
    pub(super) shelf: std::sync::Arc<Shelf>,
}

/// What the broker and its consumers share.
#[derive(Debug)]
pub(super) struct Shelf {
    state: watch::Sender<BrokerState>,
    /// Goes up with every change that somebody may wait for.
    changes: watch::Sender<u64>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
pub(super) struct Inner {
    pub(super) lanes: HashMap<String, Lane>,
    pub(super) progress: VecDeque<(u64, ProgressReport)>,
    pub(super) signals: Option<broadcast::Sender<Signal>>,
    pub(super) traffic: HashMap<String, Traffic>,
    messages: Vec<OutboxMessage>,
    sequence: u64,
    to_lose: usize,
    to_refuse: usize,
}

#[derive(Debug, Default)]
pub(super) struct Lane {
    waiting: BTreeMap<Place, Bell>,
    later: BTreeMap<(Instant, u64), Bell>,
    in_hand: HashMap<u64, (Place, Bell)>,
}

/// Higher priorities first, then in order.
type Place = (std::cmp::Reverse<u8>, u64);

impl Default for MemoryBroker {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryBroker {
    pub fn new() -> Self {
        let inner = Inner {
            signals: Some(broadcast::Sender::new(MOST_SIGNALS)),
            ..Inner::default()
        };
        let shelf = Shelf {
            state: watch::Sender::new(BrokerState::Up),
            changes: watch::Sender::new(0),
            inner: Mutex::new(inner),
        };
        Self {
            shelf: std::sync::Arc::new(shelf),
        }
    }

    /// From now on nobody reaches the broker. What consumers hold goes back to its place.
    pub fn set_down(&self, why: &str) {
        self.shelf
            .inner()
            .lanes
            .values_mut()
            .for_each(Lane::take_back_all);
        self.shelf
            .state
            .send_replace(BrokerState::Down(why.to_owned()));
        self.shelf.tell();
    }

    /// The broker is back, with all that it had.
    pub fn set_up(&self) {
        self.shelf.state.send_replace(BrokerState::Up);
        self.shelf.tell();
    }

    /// Somebody deletes every queue with what is in it. Whoever consumes declares its queue again.
    pub fn wipe(&self) {
        let mut inner = self.shelf.inner();
        inner.lanes.clear();
        inner.progress.clear();
        drop(inner);
        self.shelf.tell();
    }

    /// So many of the next bells are confirmed, and nobody ever hears them.
    pub fn lose_next(&self, bells: usize) {
        self.shelf.inner().to_lose = bells;
    }

    /// So many of the next bells are refused.
    pub fn refuse_next(&self, bells: usize) {
        self.shelf.inner().to_refuse = bells;
    }

    /// The events and dead letters that were published, in order.
    pub fn messages(&self) -> Vec<OutboxMessage> {
        self.shelf.inner().messages.clone()
    }
}

#[async_trait]
impl Broker for MemoryBroker {
    async fn declare(&self, queues: &[String]) -> Result<(), BrokerError> {
        self.shelf.reach().map_err(BrokerError::Unavailable)?;
        let mut inner = self.shelf.inner();
        for queue in queues {
            inner.lanes.entry(queue.clone()).or_default();
        }
        Ok(())
    }

    async fn ring(&self, bells: &[Bell]) -> Vec<Published> {
        let answers = self
            .shelf
            .for_each(bells, |inner, bell| inner.ring(bell, None));
        self.shelf.tell();
        answers
    }

    async fn ring_later(&self, bells: &[(Bell, u64)]) -> Vec<Published> {
        let now = Instant::now();
        let answers = self.shelf.for_each(bells, |inner, (bell, delay_ms)| {
            inner.ring(
                bell,
                (*delay_ms > 0).then(|| now + Duration::from_millis(*delay_ms)),
            )
        });
        self.shelf.tell();
        answers
    }

    async fn depth(&self, queue: &str) -> Result<usize, BrokerError> {
        self.shelf.reach().map_err(BrokerError::Unavailable)?;
        let mut inner = self.shelf.inner();
        let lane = inner.lanes.entry(queue.to_owned()).or_default();
        lane.ripen();
        Ok(lane.waiting.len())
    }

    fn bells(&self, queue: &str) -> Box<dyn Bells> {
        Box::new(MemoryBells::new(&self.shelf, queue))
    }

    async fn publish(&self, messages: &[OutboxMessage]) -> Vec<Published> {
        self.shelf.for_each(messages, |inner, message| {
            let name = match message.topic {
                Topic::Event => names::EVENTS_EXCHANGE,
                Topic::DeadLetter => names::DEAD_LETTER_QUEUE,
            };
            if inner.messages.len() >= MOST_MESSAGES {
                return Published::Refused("the broker in memory is full".to_owned());
            }
            inner.messages.push(message.clone());
            inner.traffic_of(name).published += 1;
            Published::Confirmed
        })
    }

    fn signal(&self, signal: Signal) {
        if self.shelf.reach().is_ok()
            && let Some(signals) = &self.shelf.inner().signals
        {
            // It fails when nobody listens, and then there is nobody to tell.
            let _ = signals.send(signal);
        }
    }

    fn signals(&self) -> Box<dyn Signals> {
        Box::new(MemorySignals::new(
            self.shelf
                .inner()
                .signals
                .as_ref()
                .map(broadcast::Sender::subscribe),
        ))
    }

    async fn report_progress(&self, reports: &[ProgressReport]) -> Vec<Published> {
        let answers = self.shelf.for_each(reports, |inner, report| {
            if inner.progress.len() >= MOST_MESSAGES {
                return Published::Refused("the broker in memory is full".to_owned());
            }
            let sequence = inner.next_number();
            inner.progress.push_back((sequence, report.clone()));
            inner.traffic_of(names::PROGRESS_QUEUE).published += 1;
            Published::Confirmed
        });
        self.shelf.tell();
        answers
    }

    fn progress_inbox(&self) -> Box<dyn ProgressInbox> {
        Box::new(MemoryInbox::new(&self.shelf))
    }

    fn state(&self) -> BrokerState {
        self.shelf.state.borrow().clone()
    }

    async fn state_after(&self, known: &BrokerState) -> BrokerState {
        let mut state = self.shelf.state.subscribe();
        let after = state
            .wait_for(|now| now != known)
            .await
            .map(|state| state.clone());
        after.unwrap_or_else(|_| self.state())
    }

    fn traffic(&self) -> Vec<(String, Traffic)> {
        self.shelf
            .inner()
            .traffic
            .iter()
            .map(|(name, traffic)| (name.clone(), *traffic))
            .collect()
    }

    async fn close(&self) {
        self.set_down("it was closed");
        self.shelf.inner().signals = None;
    }
}

impl Shelf {
    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the broker cannot be reached, if it cannot.
    pub(super) fn reach(&self) -> Result<(), String> {
        match &*self.state.borrow() {
            BrokerState::Up => Ok(()),
            BrokerState::Down(why) => Err(why.clone()),
        }
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(super) fn tell(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn for_each<T>(
        &self,
        messages: &[T],
        mut put: impl FnMut(&mut Inner, &T) -> Published,
    ) -> Vec<Published> {
        if let Err(why) = self.reach() {
            return vec![Published::Unknown(why); messages.len()];
        }
        let mut inner = self.inner();
        messages
            .iter()
            .map(|message| put(&mut inner, message))
            .collect()
    }
}

impl Inner {
    fn ring(&mut self, bell: &Bell, at: Option<Instant>) -> Published {
        let name = names::lane(&bell.queue);
        if self.to_refuse > 0 {
            self.to_refuse -= 1;
            self.traffic_of(&name).nacked += 1;
            return Published::Refused(format!("{name} takes no more"));
        }
        if !self.lanes.contains_key(&bell.queue) {
            self.traffic_of(&name).returned += 1;
            return Published::Refused(format!("no queue takes it: there is no {name}"));
        }
        self.traffic_of(&name).published += 1;
        if self.to_lose > 0 {
            self.to_lose -= 1;
            return Published::Confirmed;
        }
        let number = self.next_number();
        let lane = self.lanes.entry(bell.queue.clone()).or_default();
        match at {
            Some(at) => lane.later.insert((at, number), bell.clone()),
            None => lane.waiting.insert(place_of(bell, number), bell.clone()),
        };
        Published::Confirmed
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    pub(super) fn traffic_of(&mut self, name: &str) -> &mut Traffic {
        self.traffic.entry(name.to_owned()).or_default()
    }

    /// Takes the first bells of a queue into the hands of a consumer, under fresh tags.
    pub(super) fn take(&mut self, queue: &str, most: usize) -> Vec<(u64, Bell)> {
        let mut taken = Vec::new();
        while taken.len() < most {
            let tag = self.next_number();
            let lane = self.lanes.entry(queue.to_owned()).or_default();
            lane.ripen();
            let Some((place, bell)) = lane.waiting.pop_first() else {
                break;
            };
            lane.in_hand.insert(tag, (place, bell.clone()));
            taken.push((tag, bell));
        }
        self.traffic_of(&names::lane(queue)).delivered += taken.len() as u64;
        taken
    }
}

impl Lane {
    /// Moves what has waited long enough to those who wait to be heard.
    fn ripen(&mut self) {
        let now = Instant::now();
        while let Some(first) = self.later.first_entry()
            && first.key().0 <= now
        {
            let ((_, number), bell) = first.remove_entry();
            self.waiting.insert(place_of(&bell, number), bell);
        }
    }

    pub(super) fn next_ripe(&self) -> Option<Instant> {
        self.later.first_key_value().map(|((at, _), _)| *at)
    }

    /// Forgets a bell that was answered; says whether it was in hand.
    pub(super) fn answered(&mut self, tag: u64) -> bool {
        self.in_hand.remove(&tag).is_some()
    }

    pub(super) fn take_back(&mut self, tag: u64) {
        self.waiting.extend(self.in_hand.remove(&tag));
    }

    fn take_back_all(&mut self) {
        self.waiting
            .extend(self.in_hand.drain().map(|(_, held)| held));
    }
}

fn place_of(bell: &Bell, number: u64) -> Place {
    (std::cmp::Reverse(bell.priority.min(9)), number)
}
