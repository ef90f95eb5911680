//! News on the way between processes: many events a message, numbered, so that a gap is seen.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use lapin::types::{AMQPValue, FieldTable};
use longhaul_domain::{contract::event_bus::EventBus, event::TaskEvent};
use tokio::sync::{mpsc, watch};

use super::{
    connection::Shared,
    control::{self, Outbound},
    link::{Link, lock},
    message,
    topology::said,
};
use crate::{local::MemoryEventBus, names};

/// Events in one message: some ten kilobytes.
const BATCH: usize = 100;
/// How long an event waits for company. Nobody sees it on a screen.
const COMPANY: Duration = Duration::from_millis(5);
/// Processes whose numbers are remembered; beyond that all are forgotten, and their next gap is not seen.
const MOST_ORIGINS: usize = 10_000;

/// Sends what is published here to the others, until the bus is dropped.
pub(super) async fn tell(shared: Arc<Shared>, mut outgoing: mpsc::Receiver<(u64, TaskEvent)>) {
    let mut batch = Vec::with_capacity(BATCH);
    while outgoing.recv_many(&mut batch, BATCH).await > 0 {
        if batch.len() < BATCH {
            tokio::time::sleep(COMPANY).await;
            while batch.len() < BATCH
                && let Ok(next) = outgoing.try_recv()
            {
                batch.push(next);
            }
        }
        // It fails when the server is slow or away. The others then see the gap.
        let _ = shared.outbound.try_send(to_message(&batch));
        batch.clear();
    }
}

fn to_message(batch: &[(u64, TaskEvent)]) -> Outbound {
    let number = |place: Option<&(u64, TaskEvent)>| {
        place.and_then(|(number, _)| i64::try_from(*number).ok())
    };
    let mut headers = FieldTable::default();
    headers.insert(
        "first".into(),
        AMQPValue::LongLongInt(number(batch.first()).unwrap_or(0)),
    );
    headers.insert(
        "last".into(),
        AMQPValue::LongLongInt(number(batch.last()).unwrap_or(0)),
    );
    let events: Vec<_> = batch.iter().map(|(_, event)| event).collect();
    Outbound::Message {
        exchange: names::NEWS_EXCHANGE,
        headers,
        body: message::json(&events),
    }
}

/// Whether this process hears the others yet.
#[derive(Debug)]
pub(super) struct Ears {
    ready: watch::Sender<bool>,
    /// Whether anybody has begun to listen, and whether somebody came before the ears were ready.
    listeners: Mutex<(bool, bool)>,
}

impl Default for Ears {
    fn default() -> Self {
        Self {
            ready: watch::Sender::new(false),
            listeners: Mutex::default(),
        }
    }
}

impl Ears {
    pub(super) fn ready(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// Whether it is the caller's to begin.
    pub(super) fn begin(&self) -> bool {
        !std::mem::replace(&mut lock(&self.listeners).0, true)
    }

    /// Somebody listens from now on.
    pub(super) fn note_listener(&self) {
        let mut listeners = lock(&self.listeners);
        listeners.1 |= !*self.ready.borrow();
    }

    /// The ears are open, or not any more. Says whether somebody has listened to nothing meanwhile.
    fn set(&self, ready: bool) -> bool {
        let mut listeners = lock(&self.listeners);
        self.ready.send_replace(ready);
        ready && std::mem::replace(&mut listeners.1, false)
    }
}

/// Hears the others, over one link after the other, until the bus is dropped.
pub(super) async fn listen(shared: Arc<Shared>, bus: Weak<MemoryEventBus>, ears: Arc<Ears>) {
    let mut is_first = true;
    loop {
        let link = shared.consuming_link().await;
        if let Err(error) = listen_over(&shared, &link, &bus, &ears, is_first).await {
            link.fail(said(&error));
        }
        ears.set(false);
        is_first = false;
        link.gone().await;
    }
}

async fn listen_over(
    shared: &Shared,
    link: &Link,
    bus: &Weak<MemoryEventBus>,
    ears: &Ears,
    is_first: bool,
) -> lapin::Result<()> {
    let mut consumer = control::private_queue(shared, link, names::NEWS_EXCHANGE).await?;
    if ears.set(true) || !is_first {
        // Nobody knows how many there were.
        bus.upgrade().inspect(|bus| bus.tell_missed(1));
    }
    let mut next_numbers = NextNumbers::default();
    while let Some(delivery) =
        control::next_of_others(shared, link, names::NEWS_EXCHANGE, &mut consumer).await
    {
        let Some(bus) = bus.upgrade() else {
            return Ok(());
        };
        let properties = &delivery.properties;
        let origin = properties
            .app_id()
            .as_ref()
            .map_or("", |origin| origin.as_str());
        let events: Vec<TaskEvent> = serde_json::from_slice(&delivery.data).unwrap_or_default();
        let missed = next_numbers.missed(
            origin,
            number(properties, "first"),
            number(properties, "last"),
            events.len(),
        );
        if missed > 0 {
            bus.tell_missed(missed);
        }
        events.into_iter().for_each(|event| bus.publish(event));
    }
    Ok(())
}

fn number(properties: &lapin::BasicProperties, header: &str) -> u64 {
    let value = properties
        .headers()
        .as_ref()
        .and_then(|headers| headers.inner().get(header));
    value
        .and_then(AMQPValue::as_long_long_int)
        .and_then(|number| u64::try_from(number).ok())
        .unwrap_or(0)
}

/// The number that each process will use next.
#[derive(Debug, Default)]
struct NextNumbers(HashMap<String, u64>);

impl NextNumbers {
    /// Events of `origin` that were lost before and within a message that has those from `first` to `last`.
    fn missed(&mut self, origin: &str, first: u64, last: u64, events: usize) -> u64 {
        if self.0.len() >= MOST_ORIGINS {
            self.0.clear();
        }
        let expected = self.0.insert(origin.to_owned(), last + 1).unwrap_or(first);
        let within = (last + 1)
            .saturating_sub(first)
            .saturating_sub(events as u64);
        first.saturating_sub(expected) + within
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
            "what was before the first message is not ours"
        );
        assert_eq!(numbers.missed("a", 10, 10, 1), 0);
        assert_eq!(numbers.missed("b", 0, 0, 1), 0);
        assert_eq!(numbers.missed("a", 15, 19, 3), 6);
        assert_eq!(
            numbers.missed("a", 20, 20, 0),
            1,
            "a message that cannot be read is missed as a whole"
        );
        assert_eq!(numbers.missed("b", 1, 2, 2), 0);
    }
}
