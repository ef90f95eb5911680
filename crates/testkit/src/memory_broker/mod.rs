//! A broker in memory, for tests of code that uses a broker. A test can make it fail.
//!
//! It delivers hints by priority, then in the order in which they were published. When a consumer
//! pauses, is dropped or loses the broker, its unacknowledged hints return to their position at
//! once. Time is tokio's, so a test that pauses the clock pauses the delays.

mod consumers;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use async_trait::async_trait;
use longhaul_domain::{
    contract::broker::{
        Broker, BrokerError, BrokerState, Hint, HintConsumer, ProgressInbox, ProgressReport,
        Published, Signal, Signals, Traffic,
    },
    event::{OutboxMessage, Topic},
};
use tokio::{
    sync::{broadcast, watch},
    time::Instant,
};

use consumers::{MemoryHintConsumer, MemoryInbox, MemorySignals};

/// The names that traffic is counted under. They are those of the RabbitMQ broker.
const EVENTS_EXCHANGE: &str = "tasks.events.exchange";
const DEAD_LETTER_QUEUE: &str = "tasks.dlq";
const PROGRESS_QUEUE: &str = "tasks.progress";

/// The most messages of one kind that the broker stores. No test needs more.
const MAX_MESSAGES: usize = 1 << 20;
/// How many signals a listener can lag behind before it loses the oldest.
const SIGNAL_BUFFER: usize = 1_024;

/// A broker in memory.
#[derive(Debug)]
pub struct MemoryBroker {
    shared: Arc<Shared>,
}

/// What the broker and its consumers share.
#[derive(Debug)]
struct Shared {
    state: watch::Sender<BrokerState>,
    /// Incremented with every change that a consumer may be waiting for.
    changes: watch::Sender<u64>,
    contents: Mutex<Contents>,
}

/// Everything that the broker stores.
#[derive(Debug, Default)]
struct Contents {
    hint_queues: HashMap<String, HintQueue>,
    progress: VecDeque<(u64, ProgressReport)>,
    signals: Option<broadcast::Sender<Signal>>,
    traffic: HashMap<String, Traffic>,
    messages: Vec<OutboxMessage>,
    last_number: u64,
    hints_to_lose: usize,
    hints_to_refuse: usize,
}

/// The hints of one queue of tasks.
#[derive(Debug, Default)]
struct HintQueue {
    ready: BTreeMap<DeliveryOrder, Hint>,
    delayed: BTreeMap<(Instant, u64), Hint>,
    unacknowledged: HashMap<u64, (DeliveryOrder, Hint)>,
}

/// Higher priorities first, then in the order of publishing.
type DeliveryOrder = (Reverse<u8>, u64);

impl Default for MemoryBroker {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryBroker {
    pub fn new() -> Self {
        let contents = Contents {
            signals: Some(broadcast::Sender::new(SIGNAL_BUFFER)),
            ..Contents::default()
        };
        let shared = Shared {
            state: watch::Sender::new(BrokerState::Up),
            changes: watch::Sender::new(0),
            contents: Mutex::new(contents),
        };

        Self {
            shared: Arc::new(shared),
        }
    }

    /// Makes the broker unreachable. Unacknowledged hints return to their queues.
    pub fn set_down(&self, why: &str) {
        for queue in self.shared.contents().hint_queues.values_mut() {
            queue.take_back_all();
        }

        let state = BrokerState::Down(why.to_owned());
        self.shared.state.send_replace(state);
        self.shared.notify();
    }

    /// Makes the broker reachable again, with everything that it stored.
    pub fn set_up(&self) {
        self.shared.state.send_replace(BrokerState::Up);
        self.shared.notify();
    }

    /// Deletes every queue with its contents. A consumer declares its queue again.
    pub fn wipe(&self) {
        let mut contents = self.shared.contents();
        contents.hint_queues.clear();
        contents.progress.clear();
        drop(contents);

        self.shared.notify();
    }

    /// Confirms the next `hints` hints and never delivers them.
    pub fn lose_next(&self, hints: usize) {
        self.shared.contents().hints_to_lose = hints;
    }

    /// Refuses the next `hints` hints.
    pub fn refuse_next(&self, hints: usize) {
        self.shared.contents().hints_to_refuse = hints;
    }

    /// The events and dead letters that were published, in order.
    pub fn messages(&self) -> Vec<OutboxMessage> {
        self.shared.contents().messages.clone()
    }
}

#[async_trait]
impl Broker for MemoryBroker {
    async fn declare(&self, queues: &[String]) -> Result<(), BrokerError> {
        self.shared.check_up().map_err(BrokerError::Unavailable)?;

        let mut contents = self.shared.contents();
        for queue in queues {
            contents.hint_queues.entry(queue.clone()).or_default();
        }

        Ok(())
    }

    async fn publish_hints(&self, hints: &[Hint]) -> Vec<Published> {
        let answers = self
            .shared
            .publish_each(hints, |contents, hint| contents.publish_hint(hint, None));

        self.shared.notify();
        answers
    }

    async fn publish_hints_later(&self, hints: &[(Hint, u64)]) -> Vec<Published> {
        let now = Instant::now();
        let answers = self
            .shared
            .publish_each(hints, |contents, (hint, delay_ms)| {
                let due = (*delay_ms > 0).then(|| now + Duration::from_millis(*delay_ms));
                contents.publish_hint(hint, due)
            });

        self.shared.notify();
        answers
    }

    async fn depth(&self, queue: &str) -> Result<usize, BrokerError> {
        self.shared.check_up().map_err(BrokerError::Unavailable)?;

        let mut contents = self.shared.contents();
        let queue = contents.hint_queues.entry(queue.to_owned()).or_default();
        queue.release_due();

        Ok(queue.ready.len())
    }

    fn hints(&self, queue: &str) -> Box<dyn HintConsumer> {
        Box::new(MemoryHintConsumer::new(&self.shared, queue))
    }

    async fn publish(&self, messages: &[OutboxMessage]) -> Vec<Published> {
        self.shared.publish_each(messages, |contents, message| {
            if contents.messages.len() >= MAX_MESSAGES {
                return Published::Refused("the broker in memory is full".to_owned());
            }

            let name = match message.topic {
                Topic::Event => EVENTS_EXCHANGE,
                Topic::DeadLetter => DEAD_LETTER_QUEUE,
            };
            contents.messages.push(message.clone());
            contents.traffic_of(name).published += 1;

            Published::Confirmed
        })
    }

    fn signal(&self, signal: Signal) {
        if self.shared.check_up().is_ok()
            && let Some(signals) = &self.shared.contents().signals
        {
            // Sending fails when there is no listener, which is no error.
            let _ = signals.send(signal);
        }
    }

    fn signals(&self) -> Box<dyn Signals> {
        let contents = self.shared.contents();
        let receiver = contents.signals.as_ref().map(broadcast::Sender::subscribe);
        Box::new(MemorySignals::new(receiver))
    }

    async fn report_progress(&self, reports: &[ProgressReport]) -> Vec<Published> {
        let answers = self.shared.publish_each(reports, |contents, report| {
            if contents.progress.len() >= MAX_MESSAGES {
                return Published::Refused("the broker in memory is full".to_owned());
            }

            let number = contents.next_number();
            contents.progress.push_back((number, report.clone()));
            contents.traffic_of(PROGRESS_QUEUE).published += 1;

            Published::Confirmed
        });

        self.shared.notify();
        answers
    }

    fn progress_inbox(&self) -> Box<dyn ProgressInbox> {
        Box::new(MemoryInbox::new(&self.shared))
    }

    fn state(&self) -> BrokerState {
        self.shared.state.borrow().clone()
    }

    async fn state_after(&self, known: &BrokerState) -> BrokerState {
        let mut states = self.shared.state.subscribe();
        match states.wait_for(|now| now != known).await {
            Ok(now) => now.clone(),
            Err(_) => self.state(),
        }
    }

    fn traffic(&self) -> Vec<(String, Traffic)> {
        let contents = self.shared.contents();
        let counts = contents.traffic.iter();
        counts
            .map(|(name, traffic)| (name.clone(), *traffic))
            .collect()
    }

    async fn close(&self) {
        self.set_down("it was closed");
        self.shared.contents().signals = None;
    }
}

impl Shared {
    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap()
    }

    /// `Err` with the reason when the broker is unreachable.
    fn check_up(&self) -> Result<(), String> {
        match &*self.state.borrow() {
            BrokerState::Up => Ok(()),
            BrokerState::Down(why) => Err(why.clone()),
        }
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Wakes the consumers so that they look for messages again.
    fn notify(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn publish_each<T>(
        &self,
        messages: &[T],
        mut publish: impl FnMut(&mut Contents, &T) -> Published,
    ) -> Vec<Published> {
        if let Err(why) = self.check_up() {
            return vec![Published::Unknown(why); messages.len()];
        }

        let mut contents = self.contents();
        messages
            .iter()
            .map(|message| publish(&mut contents, message))
            .collect()
    }
}

impl Contents {
    /// Stores a hint, for now or for the moment when it is due.
    fn publish_hint(&mut self, hint: &Hint, due: Option<Instant>) -> Published {
        let name = traffic_name(&hint.queue);
        if self.hints_to_refuse > 0 {
            self.hints_to_refuse -= 1;
            self.traffic_of(&name).nacked += 1;
            return Published::Refused(format!("{name} takes no more"));
        }

        if !self.hint_queues.contains_key(hint.queue.as_str()) {
            self.traffic_of(&name).returned += 1;
            return Published::Refused(format!("no queue takes it: there is no {name}"));
        }

        self.traffic_of(&name).published += 1;
        if self.hints_to_lose > 0 {
            self.hints_to_lose -= 1;
            return Published::Confirmed;
        }

        let number = self.next_number();
        let queue = self.hint_queues.entry(hint.queue.to_string()).or_default();
        match due {
            Some(due) => queue.delayed.insert((due, number), hint.clone()),
            None => queue
                .ready
                .insert(delivery_order(hint, number), hint.clone()),
        };

        Published::Confirmed
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn traffic_of(&mut self, name: &str) -> &mut Traffic {
        self.traffic.entry(name.to_owned()).or_default()
    }

    /// Delivers the first hints of a queue, each under a new tag.
    fn deliver(&mut self, queue: &str, most: usize) -> Vec<(u64, Hint)> {
        let mut delivered = Vec::new();
        while delivered.len() < most {
            let tag = self.next_number();
            let hints = self.hint_queues.entry(queue.to_owned()).or_default();
            hints.release_due();
            let Some((order, hint)) = hints.ready.pop_first() else {
                break;
            };

            hints.unacknowledged.insert(tag, (order, hint.clone()));
            delivered.push((tag, hint));
        }

        self.traffic_of(&traffic_name(queue)).delivered += delivered.len() as u64;
        delivered
    }
}

impl HintQueue {
    /// Makes the delayed hints ready whose time has come.
    fn release_due(&mut self) {
        let now = Instant::now();
        while let Some(first) = self.delayed.first_entry()
            && first.key().0 <= now
        {
            let ((_, number), hint) = first.remove_entry();
            self.ready.insert(delivery_order(&hint, number), hint);
        }
    }

    /// When the next delayed hint is due.
    fn next_due(&self) -> Option<Instant> {
        self.delayed.first_key_value().map(|((due, _), _)| *due)
    }

    /// Forgets an answered hint. Returns whether it was unacknowledged.
    fn acknowledge(&mut self, tag: u64) -> bool {
        self.unacknowledged.remove(&tag).is_some()
    }

    fn take_back(&mut self, tag: u64) {
        self.ready.extend(self.unacknowledged.remove(&tag));
    }

    fn take_back_all(&mut self) {
        let hints = self.unacknowledged.drain().map(|(_, hint)| hint);
        self.ready.extend(hints);
    }
}

fn traffic_name(queue: &str) -> String {
    format!("tasks.{queue}")
}

fn delivery_order(hint: &Hint, number: u64) -> DeliveryOrder {
    (Reverse(hint.priority.min(9)), number)
}
