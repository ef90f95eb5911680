//! One channel with one consumer, and the state of every message that came over it.
//!
//! How many messages the server sends ahead is fixed when a consumer is opened. A consumer cannot
//! be cancelled without a race: a message that was under way may arrive later, and then no consumer
//! handles it. So a consumer is never cancelled. It is slowed down by deferring acknowledgements
//! for a moment, and ended by closing its channel. The server then takes back all messages that are
//! not acknowledged.

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
    topology::{reason_of, short},
};

#[derive(Debug)]
pub(super) struct ConsumerChannel {
    /// Tells the tags of this channel from those of others.
    pub(super) number: u64,
    pub(super) link: Arc<Link>,
    channel: Channel,
    pub(super) consumer: Consumer,
    /// How many unacknowledged messages the server allows.
    ahead: usize,
    /// Messages that have arrived and were not handed out yet.
    arrived: VecDeque<(u64, Vec<u8>)>,
    /// Messages that the caller has and has not answered.
    unanswered: BTreeSet<u64>,
    /// Messages that the caller has answered, whose acknowledgement is deferred since then.
    deferred: BTreeMap<u64, Instant>,
}

impl ConsumerChannel {
    /// Opens a consumer to which the server sends at most `ahead` messages ahead.
    pub(super) async fn open(
        link: &Arc<Link>,
        queue: &str,
        number: u64,
        ahead: usize,
    ) -> lapin::Result<Self> {
        let channel = link.consuming.create_channel().await?;
        let prefetch = u16::try_from(ahead).unwrap_or(u16::MAX);
        channel
            .basic_qos(prefetch, BasicQosOptions { global: false })
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
            unanswered: BTreeSet::new(),
            deferred: BTreeMap::new(),
        })
    }

    /// How many more messages the server may send.
    pub(super) fn credit(&self) -> usize {
        let unacknowledged = self.arrived.len() + self.unanswered.len() + self.deferred.len();
        self.ahead.saturating_sub(unacknowledged)
    }

    /// Whether every message that arrived has been answered.
    pub(super) fn is_done(&self) -> bool {
        self.arrived.is_empty() && self.unanswered.is_empty()
    }

    /// Since when the oldest acknowledgement has been deferred.
    pub(super) fn deferred_since(&self) -> Option<Instant> {
        self.deferred.values().min().copied()
    }

    /// Stores what the consumer has received. A consumer that ends breaks the link.
    pub(super) fn receive(&mut self, delivery: Option<lapin::Result<Delivery>>) {
        match delivery {
            Some(Ok(delivery)) => {
                let message = (delivery.delivery_tag, delivery.data);
                self.arrived.push_back(message);
            }
            Some(Err(error)) => self.link.fail(reason_of(&error)),
            None => self.link.fail("it ended a consumer"),
        }
    }

    /// Stores every message that has arrived, without waiting.
    pub(super) fn collect(&mut self) {
        while let Some(delivery) = self.consumer.next().now_or_never() {
            let is_end = delivery.is_none();
            self.receive(delivery);
            if is_end {
                return;
            }
        }
    }

    pub(super) fn hand_out(&mut self) -> Option<(u64, Vec<u8>)> {
        let (tag, body) = self.arrived.pop_front()?;
        self.unanswered.insert(tag);
        Some((tag, body))
    }

    /// Defers the acknowledgement of answered messages. Returns how many were unanswered.
    pub(super) fn answered(&mut self, tags: &BTreeSet<u64>) -> u64 {
        let now = Instant::now();
        let mut answered = 0;
        for tag in tags {
            if self.unanswered.remove(tag) {
                self.deferred.insert(*tag, now);
                answered += 1;
            }
        }

        answered
    }

    /// Rejects a message. Returns whether it was unanswered.
    pub(super) fn reject(&mut self, tag: u64) -> bool {
        let is_known = self.unanswered.remove(&tag);
        if is_known {
            let options = BasicRejectOptions { requeue: false };
            queue_frame(self.channel.basic_reject(tag, options));
        }

        is_known
    }

    /// Acknowledges up to `most` of the deferred messages, the oldest first. Returns how many.
    ///
    /// One frame covers all messages below the first that is still open.
    pub(super) fn acknowledge(&mut self, most: usize) -> usize {
        let tags: Vec<u64> = self.deferred.keys().take(most).copied().collect();
        let first_open = self.first_open(tags.len());
        let together = tags.partition_point(|tag| first_open.is_none_or(|open| *tag < open));

        if let Some(last) = tags[..together].last() {
            let options = BasicAckOptions { multiple: true };
            queue_frame(self.channel.basic_ack(*last, options));
        }
        for tag in &tags[together..] {
            let options = BasicAckOptions { multiple: false };
            queue_frame(self.channel.basic_ack(*tag, options));
        }

        self.deferred
            .retain(|tag, _| tags.binary_search(tag).is_err());
        tags.len()
    }

    /// The lowest tag that stays unacknowledged when the first `count` deferred messages do not.
    fn first_open(&self, count: usize) -> Option<u64> {
        let open = [
            self.unanswered.first().copied(),
            self.deferred.keys().nth(count).copied(),
            self.arrived.front().map(|(tag, _)| *tag),
        ];
        open.into_iter().flatten().min()
    }
}

impl Drop for ConsumerChannel {
    /// Sends the deferred acknowledgements before the channel is closed. The other messages return
    /// to the queue.
    fn drop(&mut self) {
        self.acknowledge(usize::MAX);
        queue_frame(self.channel.close(200, "bye".into()));
    }
}

/// Queues a frame without waiting until it is written. If the channel is broken, reading from it
/// shows that.
fn queue_frame<T>(call: impl Future<Output = T>) {
    let _ = call.now_or_never();
}
