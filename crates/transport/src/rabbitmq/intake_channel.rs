//! One channel with one consumer, and what is known of every message that came over it.
//!
//! How many messages the server sends ahead is fixed when a consumer is opened, and a consumer cannot be cancelled
//! without a race: what was under way to it may come later and belong to nobody. So a consumer is never cancelled. It is
//! slowed down by holding back acknowledgements, for a moment, and ended by closing its channel: the server then takes
//! back whatever is not acknowledged.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use futures::{FutureExt, StreamExt};
use lapin::{
    Channel, Consumer,
    message::Delivery,
    options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions, BasicRejectOptions},
    types::FieldTable,
};
use tokio::time::Instant;

use super::{
    link::Link,
    topology::{said, short},
};

#[derive(Debug)]
pub(super) struct IntakeChannel {
    /// Tells the tags of one channel from those of another.
    pub(super) number: u64,
    pub(super) link: Arc<Link>,
    channel: Channel,
    pub(super) consumer: Consumer,
    ahead: usize,
    pub(super) arrived: VecDeque<(u64, Vec<u8>)>,
    in_hand: BTreeSet<u64>,
    /// Answered, and not yet acknowledged, since then.
    held: BTreeMap<u64, Instant>,
}

impl IntakeChannel {
    /// Opens a consumer to which the server sends so many messages ahead.
    pub(super) async fn open(
        link: &Arc<Link>,
        queue: &str,
        number: u64,
        ahead: usize,
    ) -> lapin::Result<Self> {
        let channel = link.consuming.create_channel().await?;
        channel
            .basic_qos(
                u16::try_from(ahead).unwrap_or(u16::MAX),
                BasicQosOptions { global: false },
            )
            .await?;
        let options = BasicConsumeOptions::default();
        let consumer = channel
            .basic_consume(short(queue), "".into(), options, FieldTable::default())
            .await?;
        Ok(Self {
            number,
            link: Arc::clone(link),
            channel,
            consumer,
            ahead,
            arrived: VecDeque::new(),
            in_hand: BTreeSet::new(),
            held: BTreeMap::new(),
        })
    }

    /// How many more the server may send.
    pub(super) fn credit(&self) -> usize {
        self.ahead
            .saturating_sub(self.arrived.len() + self.in_hand.len() + self.held.len())
    }

    /// Whether everything that came has been answered.
    pub(super) fn is_done(&self) -> bool {
        self.arrived.is_empty() && self.in_hand.is_empty()
    }

    pub(super) fn held_since(&self) -> Option<Instant> {
        self.held.values().min().copied()
    }

    /// Keeps what the consumer gave. A consumer that ends by itself takes the link with it.
    pub(super) fn arrived(&mut self, delivery: Option<lapin::Result<Delivery>>) {
        match delivery {
            Some(Ok(delivery)) => self
                .arrived
                .push_back((delivery.delivery_tag, delivery.data)),
            Some(Err(error)) => self.link.fail(said(&error)),
            None => self.link.fail("it ended a consumer"),
        }
    }

    /// Takes over what has come and nobody has looked at.
    pub(super) fn collect(&mut self) {
        while let Some(delivery) = self.consumer.next().now_or_never() {
            let is_end = delivery.is_none();
            self.arrived(delivery);
            if is_end {
                return;
            }
        }
    }

    pub(super) fn hand_out(&mut self) -> Option<(u64, Vec<u8>)> {
        let (tag, body) = self.arrived.pop_front()?;
        self.in_hand.insert(tag);
        Some((tag, body))
    }

    /// Notes that messages are answered, and says how many of them were in hand.
    pub(super) fn answered(&mut self, tags: &BTreeSet<u64>) -> u64 {
        let now = Instant::now();
        let known: Vec<u64> = tags
            .iter()
            .copied()
            .filter(|tag| self.in_hand.remove(tag))
            .collect();
        self.held.extend(known.iter().map(|tag| (*tag, now)));
        known.len() as u64
    }

    /// Says no to a message; whether it was in hand.
    pub(super) fn reject(&mut self, tag: u64) -> bool {
        let is_known = self.in_hand.remove(&tag);
        if is_known {
            queue_frame(
                self.channel
                    .basic_reject(tag, BasicRejectOptions { requeue: false }),
            );
        }
        is_known
    }

    /// Acknowledges up to so many of those that were held back, the oldest first: by one frame for all that lie below
    /// the first that is still open. Says how many.
    pub(super) fn release(&mut self, most: usize) -> usize {
        let tags: Vec<u64> = self.held.keys().take(most).copied().collect();
        let next_held = self.held.keys().nth(tags.len()).copied();
        let next_arrived = self.arrived.front().map(|(tag, _)| *tag);
        let open = [self.in_hand.first().copied(), next_held, next_arrived]
            .into_iter()
            .flatten()
            .min();
        let together = tags.partition_point(|tag| open.is_none_or(|open| *tag < open));
        if let Some(last) = tags[..together].last() {
            queue_frame(
                self.channel
                    .basic_ack(*last, BasicAckOptions { multiple: true }),
            );
        }
        for tag in &tags[together..] {
            queue_frame(
                self.channel
                    .basic_ack(*tag, BasicAckOptions { multiple: false }),
            );
        }
        self.held.retain(|tag, _| tags.binary_search(tag).is_err());
        tags.len()
    }
}

impl Drop for IntakeChannel {
    /// The last acknowledgements go before the channel is closed; the rest goes back to the server.
    fn drop(&mut self) {
        self.release(usize::MAX);
        queue_frame(self.channel.close(200, "bye".into()));
    }
}

/// Queues a frame without waiting until it is written. A channel that is broken says so to whoever reads from it.
fn queue_frame<T>(call: impl Future<Output = T>) {
    let _ = call.now_or_never();
}
