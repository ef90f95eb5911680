//! Carries task events between processes: many events in one message, numbered, so that the
//! receiver sees a gap.

use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};

use lapin::{
    BasicProperties,
    message::Delivery,
    types::{AMQPValue, FieldTable},
};
use longhaul_domain::{contract::event_bus::EventBus, event::TaskEvent};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use super::{
    connection::Shared,
    control::{self, Outbound},
    link::Link,
    message,
    topology::reason_of,
};
use crate::{local::MemoryEventBus, names};

/// Events in one message: some ten kilobytes.
const BATCH: usize = 100;
/// How long an event waits for others to share its message. No reader notices the delay.
const BATCH_DELAY: Duration = Duration::from_millis(5);
/// The most processes whose numbers are remembered. Beyond that all are forgotten, and their next
/// gap is not seen.
const MAX_ORIGINS: usize = 10_000;

/// Sends the events of this process to the others until the bus is dropped.
pub(super) async fn send_events(
    shared: Arc<Shared>,
    mut outgoing: mpsc::Receiver<(u64, TaskEvent)>,
) {
    let mut batch = Vec::with_capacity(BATCH);
    while outgoing.recv_many(&mut batch, BATCH).await > 0 {
        if batch.len() < BATCH {
            tokio::time::sleep(BATCH_DELAY).await;
            while batch.len() < BATCH
                && let Ok(next) = outgoing.try_recv()
            {
                batch.push(next);
            }
        }

        // This fails when the server is slow or down. The other processes then see the gap.
        let _ = shared.outbound.try_send(to_message(&batch));
        batch.clear();
    }
}

fn to_message(batch: &[(u64, TaskEvent)]) -> Outbound {
    let number = |entry: Option<&(u64, TaskEvent)>| {
        let number = entry.and_then(|(number, _)| i64::try_from(*number).ok());
        AMQPValue::LongLongInt(number.unwrap_or(0))
    };
    let mut headers = FieldTable::default();
    headers.insert("first".into(), number(batch.first()));
    headers.insert("last".into(), number(batch.last()));

    let events: Vec<_> = batch.iter().map(|(_, event)| event).collect();
    Outbound::Message {
        exchange: names::FANOUT_EXCHANGE,
        headers,
        body: message::json(&events),
    }
}

/// Whether this process receives the events of the others yet.
#[derive(Debug)]
pub(super) struct Reception {
    is_ready: watch::Sender<bool>,
    /// Also held while `is_ready` changes, so that a listener is either early or sees all events.
    listeners: Mutex<Listeners>,
}

#[derive(Debug, Default)]
struct Listeners {
    has_started: bool,
    /// Whether a listener has subscribed since the reception was last ready.
    has_early: bool,
}

impl Default for Reception {
    fn default() -> Self {
        Self {
            is_ready: watch::Sender::new(false),
            listeners: Mutex::default(),
        }
    }
}

impl Reception {
    /// Waits until this process receives the events of the others.
    pub(super) async fn ready(&self) {
        let mut is_ready = self.is_ready.subscribe();
        // The wait fails only without a sender, and `self` has the sender.
        let _ = is_ready.wait_for(|is_ready| *is_ready).await;
    }

    /// Returns true to the first caller, which is to start the reception.
    pub(super) fn start(&self) -> bool {
        !std::mem::replace(&mut self.listeners.lock().has_started, true)
    }

    pub(super) fn note_listener(&self) {
        // The lock orders this with `set_ready`: a listener is early, or sees all events.
        let mut listeners = self.listeners.lock();
        listeners.has_early |= !*self.is_ready.borrow();
    }

    /// Returns whether there are listeners that subscribed before this.
    fn set_ready(&self) -> bool {
        let mut listeners = self.listeners.lock();
        self.is_ready.send_replace(true);
        std::mem::take(&mut listeners.has_early)
    }

    fn set_unready(&self) {
        let _listeners = self.listeners.lock();
        self.is_ready.send_replace(false);
    }
}

/// Receives the events of the other processes, over one link after another.
pub(super) async fn receive_events(
    shared: Arc<Shared>,
    bus: Weak<MemoryEventBus>,
    reception: Arc<Reception>,
) {
    let mut is_first = true;
    loop {
        let link = shared.consuming_link().await;
        let received = receive_over(&shared, &link, &bus, &reception, is_first).await;
        if let Err(error) = received {
            link.fail(reason_of(&error));
        }

        reception.set_unready();
        is_first = false;
        link.failed().await;
    }
}

async fn receive_over(
    shared: &Shared,
    link: &Link,
    bus: &Weak<MemoryEventBus>,
    reception: &Reception,
    is_first: bool,
) -> lapin::Result<()> {
    let exchange = names::FANOUT_EXCHANGE;
    let mut consumer = control::consume_broadcast(shared, link, exchange).await?;
    let has_early = reception.set_ready();
    if (has_early || !is_first)
        && let Some(bus) = bus.upgrade()
    {
        // The number of missed events is unknown.
        bus.report_missed(1);
    }

    let mut next_numbers = NextNumbers::default();
    while let Some(delivery) =
        control::next_from_others(shared, link, exchange, &mut consumer).await
    {
        let Some(bus) = bus.upgrade() else {
            return Ok(());
        };
        publish_received(&bus, &delivery, &mut next_numbers);
    }

    Ok(())
}

/// Publishes the events of a message here, and reports the events that were lost before it.
fn publish_received(bus: &MemoryEventBus, delivery: &Delivery, next_numbers: &mut NextNumbers) {
    let properties = &delivery.properties;
    let origin = properties.app_id().as_ref();
    let origin = origin.map_or("", |origin| origin.as_str());
    let first = number(properties, "first");
    let last = number(properties, "last");
    // An unreadable message has no events, so all of them count as missed.
    let events: Vec<TaskEvent> = serde_json::from_slice(&delivery.data).unwrap_or_default();

    let missed = next_numbers.missed(origin, first, last, events.len());
    if missed > 0 {
        bus.report_missed(missed);
    }
    for event in events {
        bus.publish(event);
    }
}

fn number(properties: &BasicProperties, header: &str) -> u64 {
    let headers = properties.headers().as_ref();
    let value = headers.and_then(|headers| headers.inner().get(header));
    let number = value.and_then(AMQPValue::as_long_long_int);
    number
        .and_then(|number| u64::try_from(number).ok())
        .unwrap_or(0)
}

/// The number that each process will use next.
#[derive(Debug, Default)]
struct NextNumbers(HashMap<String, u64>);

impl NextNumbers {
    /// How many events of `origin` were lost before and within a message that has the numbers from
    /// `first` to `last`.
    fn missed(&mut self, origin: &str, first: u64, last: u64, events: usize) -> u64 {
        if self.0.len() >= MAX_ORIGINS {
            self.0.clear();
        }

        let expected = self.0.insert(origin.to_owned(), last + 1).unwrap_or(first);
        let before = first.saturating_sub(expected);
        let numbers = (last + 1).saturating_sub(first);
        let within = numbers.saturating_sub(events as u64);

        before + within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_counted_before_and_within_a_message() {
        let mut numbers = NextNumbers::default();
        assert_eq!(
            numbers.missed("a", 7, 9, 3),
            0,
            "events before the first message do not count"
        );
        assert_eq!(numbers.missed("a", 10, 10, 1), 0);
        assert_eq!(numbers.missed("b", 0, 0, 1), 0);
        assert_eq!(numbers.missed("a", 15, 19, 3), 6);

        assert_eq!(
            numbers.missed("a", 20, 20, 0),
            1,
            "a message that cannot be read counts as missed"
        );
        assert_eq!(numbers.missed("b", 1, 2, 2), 0);
    }
}
