//! Reads messages from one queue. The server sends about as many ahead as the caller asks for, and
//! each message is answered once.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, future::select_all};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    connection::Shared,
    consumer_channel::ConsumerChannel,
    link::Link,
    topology::{DeclareError, declare_hint_queue, reason_of},
    watchdog::ConsumerProbe,
};

/// The most messages that the server sends ahead: as many as one claim takes.
const MAX_AHEAD: usize = 1_000;
/// The most channels of one reader. A caller that keeps asking and answers nothing gets no more.
const MAX_CHANNELS: usize = 64;
/// The bits of a tag that are the server's tag. The other bits are the number of the channel.
const TAG_BITS: u32 = 40;
/// Channels are numbered up to this and then from 0 again: far more than are ever open together.
const LAST_CHANNEL: u64 = u64::MAX >> TAG_BITS;
/// How long an acknowledgement is deferred at most. A server closes consumers that do not
/// acknowledge for half an hour.
const MAX_DEFERRAL: Duration = Duration::from_secs(2);
/// How long the server may send more than the caller wants. A caller that wants more a moment later
/// then costs nothing.
const MAX_EXCESS: Duration = Duration::from_millis(50);
/// The pause after which a queue that cannot be consumed is tried again.
const DECLARE_RETRY: Duration = Duration::from_secs(5);

/// A message, with the tag to answer it by.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) tag: u64,
    pub(super) body: Vec<u8>,
}

/// The reader of one queue.
#[derive(Debug)]
pub(super) struct QueueReader {
    shared: Arc<Shared>,
    /// The queue's full name.
    queue: String,
    /// The queue's name without the namespace. Traffic is counted under it.
    name: String,
    /// The task queue, if this queue has its hints.
    task_queue: Option<String>,
    probe: Arc<ConsumerProbe>,
    channels: Vec<ConsumerChannel>,
    /// The channels of a paused reader. The server sends nothing over them until something is
    /// acknowledged.
    /// Shared with the task that closes them; never held across an await.
    paused: Arc<Mutex<Vec<ConsumerChannel>>>,
    /// The number of the channel that was opened last.
    last_opened: u64,
    /// Since when the server may send more than is wanted.
    excess_since: Option<Instant>,
}

impl QueueReader {
    pub(super) fn new(shared: &Arc<Shared>, name: String, task_queue: Option<String>) -> Self {
        let queue = shared.names.full(&name);
        Self {
            shared: Arc::clone(shared),
            probe: ConsumerProbe::new(queue.clone()),
            queue,
            name,
            task_queue,
            channels: Vec::new(),
            paused: Arc::default(),
            last_opened: 0,
            excess_since: None,
        }
    }

    /// Waits for messages and returns at most `most`. May be dropped at any point.
    pub(super) async fn next(&mut self, most: usize) -> Vec<Message> {
        if most == 0 {
            return Vec::new();
        }

        self.channels.append(&mut self.paused.lock());
        loop {
            let link = self.shared.consuming_link().await;
            self.channels
                .retain(|channel| channel.link.number == link.number);

            let taken = self.take(most);
            if !taken.is_empty() {
                let delivered = taken.len() as u64;
                self.shared
                    .traffic
                    .count(&self.name, |traffic| traffic.delivered += delivered);
                return taken;
            }

            match self.adjust_credit(&link, most).await {
                Ok(until) => self.wait(&link, until).await,
                Err(why) => {
                    link.fail(why);
                    link.failed().await;
                }
            }
        }
    }

    /// Acknowledges messages. Unknown tags are ignored.
    pub(super) fn answered(&mut self, tags: &[u64]) {
        let mut by_channel: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for tag in tags {
            let (number, tag) = split_tag(*tag);
            by_channel.entry(number).or_default().insert(tag);
        }

        let mut acked = 0;
        for channel in &mut self.channels {
            if let Some(tags) = by_channel.get(&channel.number) {
                acked += channel.answered(tags);
            }
        }

        self.shared
            .traffic
            .count(&self.name, |traffic| traffic.acked += acked);
    }

    /// Rejects a message. The server moves it to the dead letters, or drops it if the queue has
    /// none.
    pub(super) fn reject(&mut self, tag: u64) {
        let (number, tag) = split_tag(tag);
        let mut channels = self.channels.iter_mut();
        if let Some(channel) = channels.find(|channel| channel.number == number)
            && channel.reject(tag)
        {
            self.shared
                .traffic
                .count(&self.name, |traffic| traffic.nacked += 1);
        }
    }

    /// Gives back every message that is not answered, and takes none until the next call of
    /// [`Self::next`].
    pub(super) fn pause(&mut self) {
        let is_quiet = |channel: &ConsumerChannel| channel.is_done() && channel.credit() == 0;
        if self.channels.is_empty() || !self.channels.iter().all(is_quiet) {
            self.channels.clear();
            return;
        }

        // A slot is often free again in a moment, so quiet channels stay open for a while. The task
        // closes them if `next` has not taken them back by then.
        self.paused.lock().append(&mut self.channels);
        let paused = Arc::clone(&self.paused);
        tokio::spawn(async move {
            sleep(MAX_DEFERRAL).await;
            let is_old = |since: Instant| since.elapsed() >= MAX_DEFERRAL;
            paused
                .lock()
                .retain(|channel| !channel.deferred_since().is_some_and(is_old));
        });
    }

    fn take(&mut self, most: usize) -> Vec<Message> {
        let mut taken = Vec::new();
        for channel in &mut self.channels {
            channel.collect();
            while taken.len() < most
                && let Some((tag, body)) = channel.hand_out()
            {
                taken.push(Message {
                    tag: join_tag(channel.number, tag),
                    body,
                });
            }
        }

        taken
    }

    /// Makes the server send about `most` messages ahead. Returns when to call this again.
    async fn adjust_credit(
        &mut self,
        link: &Arc<Link>,
        most: usize,
    ) -> Result<Option<Instant>, String> {
        let most = most.min(MAX_AHEAD);
        let mut credit: usize = self.channels.iter().map(ConsumerChannel::credit).sum();
        for channel in &mut self.channels {
            credit += channel.acknowledge(most.saturating_sub(credit));
        }

        if !self.channels.iter().all(ConsumerChannel::is_done) {
            // No channel can be closed before the caller has answered. A caller that waits without
            // answering gets another channel.
            if credit == 0 && self.channels.len() < MAX_CHANNELS {
                self.open(link, most).await?;
            }
            return Ok(None);
        }

        let now = Instant::now();
        self.excess_since = (credit > most).then(|| self.excess_since.unwrap_or(now));
        let next_check = self.next_check();
        if credit * 2 < most || next_check.is_some_and(|at| at <= now) {
            self.channels.clear();
            self.excess_since = None;
            self.open(link, most).await?;
            return Ok(None);
        }

        Ok(next_check)
    }

    /// When the excess or the oldest deferred acknowledgement has lasted too long.
    fn next_check(&self) -> Option<Instant> {
        let deferred_since = self
            .channels
            .iter()
            .filter_map(ConsumerChannel::deferred_since)
            .min();
        let checks = [
            self.excess_since.map(|since| since + MAX_EXCESS),
            deferred_since.map(|since| since + MAX_DEFERRAL),
        ];

        checks.into_iter().flatten().min()
    }

    async fn open(&mut self, link: &Arc<Link>, ahead: usize) -> Result<(), String> {
        self.declare(link).await?;
        self.last_opened = next_number(self.last_opened);
        let opened = ConsumerChannel::open(link, &self.queue, self.last_opened, ahead).await;
        self.channels
            .push(opened.map_err(|error| reason_of(&error))?);
        link.watch_consumer(&self.probe);
        Ok(())
    }

    /// Declares a hint queue before it is consumed. A queue with other settings must be fixed by an
    /// operator, and one that is down with its server comes back with it. The reader waits for
    /// either.
    async fn declare(&self, link: &Link) -> Result<(), String> {
        let Some(queue) = self.task_queue.as_deref() else {
            return Ok(());
        };
        if link.has_declared(queue) {
            return Ok(());
        }

        loop {
            let channel = link.consuming.create_channel().await;
            let channel = channel.map_err(|error| reason_of(&error))?;
            let kind = self.shared.options.queue_kind;
            match declare_hint_queue(&channel, &self.shared.names, kind, queue).await {
                Ok(()) => {
                    link.note_declared(queue);
                    return Ok(());
                }
                Err(DeclareError::Unavailable(why)) => return Err(why),
                Err(DeclareError::Differs(why) | DeclareError::Absent(why)) => {
                    tracing::error!(queue, "broker: no hints for this queue: {why}");
                }
            }

            // A link that breaks ends the wait.
            tokio::select! {
                why = link.failed() => return Err(why),
                () = sleep(DECLARE_RETRY) => {}
            }
        }
    }

    /// Waits until a message arrives, the link is broken, or it is time for the next check.
    async fn wait(&mut self, link: &Link, until: Option<Instant>) {
        let _waiting = self.probe.start_waiting();
        let consumers = self
            .channels
            .iter_mut()
            .map(|channel| channel.consumer.next());

        // Each branch can be cancelled: a consumer that is not polled to the end loses nothing.
        let (delivery, index, _) = tokio::select! {
            delivery = select_all(consumers) => delivery,
            _ = link.failed() => return,
            () = at(until) => return,
        };
        if let Some(channel) = self.channels.get_mut(index) {
            channel.receive(delivery);
        }

        // Messages that the server sent together with this one are about to arrive.
        tokio::task::yield_now().await;
    }
}

impl Drop for QueueReader {
    fn drop(&mut self) {
        // Otherwise the task that closes quiet channels would keep them for another moment.
        self.paused.lock().clear();
    }
}

/// The number of the channel after this one.
const fn next_number(number: u64) -> u64 {
    (number + 1) & LAST_CHANNEL
}

/// The tag that the caller sees: the number of the channel and the server's tag.
const fn join_tag(number: u64, tag: u64) -> u64 {
    (number << TAG_BITS) | tag
}

/// The number of the channel and the server's tag.
const fn split_tag(tag: u64) -> (u64, u64) {
    (tag >> TAG_BITS, tag & ((1 << TAG_BITS) - 1))
}

/// Waits until the moment; for ever when there is none.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_leads_to_its_channel_after_any_number_of_channels() {
        let mut number = (1 << 24) - 3;
        for _ in 0..5 {
            number = next_number(number);
            assert_eq!(split_tag(join_tag(number, 7)), (number, 7));
        }
        assert_eq!(number, 2);
    }
}
