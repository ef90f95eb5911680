//! Takes messages out of one queue, no more ahead than the caller asks for, and answers for each once.
//!
//! How many the server sends ahead is set when a consumer is opened. A caller that wants more or less gets another
//! consumer: on the same channel when nothing is in its hands, else on a channel of its own, and the old one lives until
//! its last message is answered.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use futures::{FutureExt, StreamExt};
use lapin::{
    Channel,
    options::{
        BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicNackOptions, BasicQosOptions, BasicRejectOptions,
    },
    types::FieldTable,
};
use longhaul_domain::contract::broker::BrokerError;

use super::{
    connection::Shared,
    link::Link,
    topology::{declare_lane, said, short},
    watchdog::Ear,
};

/// Messages that are sent ahead at most: as many as one claim takes.
const MOST_AHEAD: usize = 1_000;
/// Bits of a tag that are the server's number; the rest is the number of the channel.
const TAG_BITS: u32 = 40;
/// A lane that people must mend is looked at again after this.
const MEND_TIME: Duration = Duration::from_secs(5);

/// A message in our hands, and what it is answered by.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) tag: u64,
    pub(super) body: Vec<u8>,
}

/// One consumer of one queue.
#[derive(Debug)]
pub(super) struct Intake {
    shared: Arc<Shared>,
    /// The queue's full name.
    queue: String,
    /// The name that it is counted under.
    counted: String,
    /// The queue of tasks whose lane it is, if it is one.
    lane: Option<String>,
    ear: Arc<Ear>,
    open: Option<Open>,
    retired: Vec<Open>,
    channels: u64,
}

/// A channel with a consumer, unless it is paused.
#[derive(Debug)]
struct Open {
    number: u64,
    link: Arc<Link>,
    channel: Channel,
    consumer: Option<lapin::Consumer>,
    consumers: u64,
    ahead: usize,
    arrived: VecDeque<(u64, Vec<u8>)>,
    in_hand: BTreeSet<u64>,
}

impl Intake {
    pub(super) fn new(shared: &Arc<Shared>, counted: String, lane: Option<String>) -> Self {
        let queue = shared.names.full(&counted);
        let ear = Ear::new(queue.clone());
        let shared = Arc::clone(shared);
        Self { shared, queue, counted, lane, ear, open: None, retired: Vec::new(), channels: 0 }
    }

    /// Waits for messages and hands out at most `most`. May be given up at any point.
    pub(super) async fn next(&mut self, most: usize) -> Vec<Message> {
        if most == 0 {
            return Vec::new();
        }
        loop {
            let link = self.shared.consuming_link().await;
            self.forget_other_links(&link);
            let taken = self.take(most);
            if !taken.is_empty() {
                let delivered = taken.len() as u64;
                self.shared.traffic.count(&self.counted, |traffic| traffic.delivered += delivered);
                return taken;
            }
            if let Err(why) = self.open_for(&link, most).await {
                link.fail(why);
                link.gone().await;
                continue;
            }
            let Some(consumer) = self.open.as_mut().and_then(|open| open.consumer.as_mut()) else { continue };
            let waiting = self.ear.wait();
            let delivery = tokio::select! {
                delivery = consumer.next() => delivery,
                _ = link.gone() => continue,
            };
            drop(waiting);
            if self.arrived(&link, delivery) {
                // Those that were sent together with it are about to arrive.
                tokio::task::yield_now().await;
            }
        }
    }

    /// These messages are done with. Tags that are not in our hands are ignored.
    pub(super) fn answered(&mut self, tags: &[u64]) {
        let mut by_channel: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for tag in tags {
            by_channel.entry(tag >> TAG_BITS).or_default().insert(tag & ((1 << TAG_BITS) - 1));
        }
        let mut acked = 0;
        for open in self.open.iter_mut().chain(&mut self.retired) {
            acked += by_channel.get(&open.number).map_or(0, |tags| open.ack(tags));
        }
        self.retired.retain(|open| !open.is_empty());
        self.shared.traffic.count(&self.counted, |traffic| traffic.acked += acked);
    }

    /// A message is not for us: the server sets it aside, or drops it where nothing is set aside.
    pub(super) fn reject(&mut self, tag: u64) {
        let (channel, tag) = (tag >> TAG_BITS, tag & ((1 << TAG_BITS) - 1));
        let open = self.open.iter_mut().chain(&mut self.retired).find(|open| open.number == channel);
        if let Some(open) = open
            && open.in_hand.remove(&tag)
        {
            now(open.channel.basic_reject(tag, BasicRejectOptions { requeue: false }));
            self.shared.traffic.count(&self.counted, |traffic| traffic.nacked += 1);
        }
    }

    /// Gives back everything that is not answered, and takes nothing more before it is asked again.
    pub(super) fn pause(&mut self) {
        self.retired.clear();
        if let Some(open) = &mut self.open {
            open.cancel();
            open.give_back_all();
        }
    }

    /// What belongs to a link that is gone is gone with it.
    fn forget_other_links(&mut self, link: &Link) {
        let is_here = |open: &Open| open.link.number == link.number;
        self.retired.retain(is_here);
        self.open.take_if(|open| !is_here(open));
    }

    fn take(&mut self, most: usize) -> Vec<Message> {
        let mut taken = Vec::new();
        for open in self.retired.iter_mut().chain(&mut self.open) {
            open.collect();
            while taken.len() < most
                && let Some((tag, body)) = open.arrived.pop_front()
            {
                open.in_hand.insert(tag);
                taken.push(Message { tag: (open.number << TAG_BITS) | tag, body });
            }
        }
        taken
    }

    /// Makes sure that the server sends about `most` messages ahead, and not more.
    async fn open_for(&mut self, link: &Arc<Link>, most: usize) -> Result<(), String> {
        let most = most.min(MOST_AHEAD);
        if let Some(open) = &mut self.open {
            if open.suits(most) {
                return Ok(());
            }
            open.cancel();
            if !open.in_hand.is_empty() {
                self.retired.extend(self.open.take());
            }
        }
        if self.open.is_none() {
            self.declare(link).await?;
            let channel = link.consuming.create_channel().await.map_err(|error| said(&error))?;
            self.channels += 1;
            link.watch_over(Arc::downgrade(&self.ear));
            self.open = Some(Open::new(self.channels, link, channel));
        }
        match &mut self.open {
            Some(open) => open.consume(&self.queue, most),
            None => Ok(()),
        }
    }

    /// A lane is made before it is consumed. One that is there otherwise is for people to mend; until then we wait.
    async fn declare(&self, link: &Link) -> Result<(), String> {
        let Some(lane) = self.lane.as_deref().filter(|lane| !link.has_declared(lane)) else { return Ok(()) };
        loop {
            let channel = link.consuming.create_channel().await.map_err(|error| said(&error))?;
            match declare_lane(&channel, &self.shared.names, self.shared.options.lanes, lane).await {
                Ok(()) => {
                    link.note_declared(lane);
                    return Ok(());
                }
                Err(BrokerError::Unavailable(why)) => return Err(why),
                Err(BrokerError::Topology(why)) => tracing::error!(queue = lane, "no bells: {why}"),
            }
            tokio::select! {
                why = link.gone() => return Err(why),
                () = tokio::time::sleep(MEND_TIME) => {}
            }
        }
    }

    /// Keeps what the consumer gave. A consumer that ends by itself takes the link with it.
    fn arrived(&mut self, link: &Link, delivery: Option<lapin::Result<lapin::message::Delivery>>) -> bool {
        match (delivery, &mut self.open) {
            (Some(Ok(delivery)), Some(open)) => {
                open.arrived.push_back((delivery.delivery_tag, delivery.data));
                return true;
            }
            (Some(Ok(_)), None) => {}
            (Some(Err(error)), _) => link.fail(said(&error)),
            (None, _) => link.fail(format!("it ended the consumer of {}", self.queue)),
        }
        false
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        // Dropped channels are closed, and the server takes back what was sent over them; this only says it sooner.
        self.pause();
    }
}

impl Open {
    fn new(number: u64, link: &Arc<Link>, channel: Channel) -> Self {
        Self {
            number,
            link: Arc::clone(link),
            channel,
            consumer: None,
            consumers: 0,
            ahead: 0,
            arrived: VecDeque::new(),
            in_hand: BTreeSet::new(),
        }
    }

    fn is_empty(&self) -> bool {
        self.in_hand.is_empty() && self.arrived.is_empty()
    }

    /// Whether the server may send about as many more as are wanted.
    fn suits(&self, most: usize) -> bool {
        let credit = self.ahead.saturating_sub(self.in_hand.len());
        self.consumer.is_some() && credit <= most && credit * 2 >= most
    }

    /// Opens a consumer. Nothing is waited for: what goes wrong is heard from the consumer.
    fn consume(&mut self, queue: &str, ahead: usize) -> Result<(), String> {
        // What was under way to an earlier consumer, and what is behind a pause, goes back first.
        self.give_back_all();
        self.consumers += 1;
        self.ahead = ahead;
        let ahead = u16::try_from(ahead).unwrap_or(u16::MAX);
        now(self.channel.basic_qos(ahead, BasicQosOptions { global: false }));
        let options = BasicConsumeOptions { nowait: true, ..BasicConsumeOptions::default() };
        let tag = short(&format!("longhaul-{}", self.consumers));
        let consumer = now(self.channel.basic_consume(short(queue), tag, options, FieldTable::default()));
        self.consumer = Some(consumer.ok_or("the consumer was not opened")?.map_err(|error| said(&error))?);
        Ok(())
    }

    fn cancel(&mut self) {
        self.collect();
        if let Some(consumer) = self.consumer.take() {
            now(self.channel.basic_cancel(consumer.tag(), BasicCancelOptions { nowait: true }));
        }
    }

    /// Takes over what has arrived and nobody has looked at.
    fn collect(&mut self) {
        let Some(consumer) = &mut self.consumer else { return };
        // The end of a consumer is left for whoever waits for it.
        while let Some(Some(Ok(delivery))) = consumer.next().now_or_never() {
            self.arrived.push_back((delivery.delivery_tag, delivery.data));
        }
    }

    /// Everything that the server has sent over this channel and that is not answered goes back into its place.
    fn give_back_all(&mut self) {
        self.arrived.clear();
        self.in_hand.clear();
        now(self.channel.basic_nack(0, BasicNackOptions { multiple: true, requeue: true }));
    }

    /// Answers for the messages that are in hand: by one frame for all below the first that is still open.
    fn ack(&mut self, tags: &BTreeSet<u64>) -> u64 {
        let known: Vec<u64> = tags.iter().copied().filter(|tag| self.in_hand.remove(tag)).collect();
        let first_open = self.in_hand.first().copied().unwrap_or(u64::MAX);
        let together = known.partition_point(|tag| *tag < first_open);
        if let Some(last) = known[..together].last() {
            now(self.channel.basic_ack(*last, BasicAckOptions { multiple: true }));
        }
        for tag in &known[together..] {
            now(self.channel.basic_ack(*tag, BasicAckOptions { multiple: false }));
        }
        known.len() as u64
    }
}

/// Queues a frame without waiting until it is written. A channel that is broken says so to whoever reads from it.
fn now<T>(call: impl Future<Output = T>) -> Option<T> {
    call.now_or_never()
}
