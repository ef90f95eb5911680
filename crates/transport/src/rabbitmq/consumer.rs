//! Takes messages out of one queue, about as many ahead as the caller asks for, and answers for each once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt, future::select_all};
use tokio::time::{Instant, sleep_until};

use super::{
    connection::Shared,
    intake_channel::IntakeChannel,
    link::{Link, lock},
    topology::{Failure, declare_lane, said},
    watchdog::Ear,
};

/// Messages that are sent ahead at most: as many as one claim takes.
const MOST_AHEAD: usize = 1_000;
/// Channels of one consumer at most: a caller who asks again and again and answers nothing gets no more.
const MOST_CHANNELS: usize = 64;
/// Bits of a tag that are the server's number; the rest is the number of the channel.
const TAG_BITS: u32 = 40;
/// Channels are numbered up to this and then from 0 again: far more than are open together.
const LAST_CHANNEL: u64 = u64::MAX >> TAG_BITS;
/// How long an acknowledgement is held back at most. A server gives up consumers after half an hour.
const HOLD: Duration = Duration::from_secs(2);
/// How long the server may send more than the caller wants, so that one who wants more in a moment costs nothing.
const EXCESS: Duration = Duration::from_millis(50);
/// A lane that cannot be consumed now is looked at again after this.
const MEND: Duration = Duration::from_secs(5);

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
    channels: Vec<IntakeChannel>,
    /// Channels of a paused consumer: nothing can come over them until something is acknowledged.
    parked: Arc<Mutex<Vec<IntakeChannel>>>,
    opened: u64,
    /// The server may send more than is wanted, since then.
    excess_since: Option<Instant>,
}

impl Intake {
    pub(super) fn new(shared: &Arc<Shared>, counted: String, lane: Option<String>) -> Self {
        let queue = shared.names.full(&counted);
        Self {
            shared: Arc::clone(shared),
            ear: Ear::new(queue.clone()),
            queue,
            counted,
            lane,
            channels: Vec::new(),
            parked: Arc::default(),
            opened: 0,
            excess_since: None,
        }
    }

    /// Waits for messages and hands out at most `most`. May be given up at any point.
    pub(super) async fn next(&mut self, most: usize) -> Vec<Message> {
        if most == 0 {
            return Vec::new();
        }
        self.channels.append(&mut lock(&self.parked));
        loop {
            let link = self.shared.consuming_link().await;
            self.channels
                .retain(|channel| channel.link.number == link.number);
            let taken = self.take(most);
            if !taken.is_empty() {
                let delivered = taken.len() as u64;
                self.shared
                    .traffic
                    .count(&self.counted, |traffic| traffic.delivered += delivered);
                return taken;
            }
            match self.open_for(&link, most).await {
                Ok(until) => self.wait(&link, until).await,
                Err(why) => {
                    link.fail(why);
                    link.gone().await;
                }
            }
        }
    }

    /// These messages are done with. Tags that are not in our hands are ignored.
    pub(super) fn answered(&mut self, tags: &[u64]) {
        let mut by_channel: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for tag in tags {
            let (number, tag) = parts(*tag);
            by_channel.entry(number).or_default().insert(tag);
        }
        let count = |channel: &mut IntakeChannel| {
            by_channel
                .get(&channel.number)
                .map_or(0, |tags| channel.answered(tags))
        };
        let acked: u64 = self.channels.iter_mut().map(count).sum();
        self.shared
            .traffic
            .count(&self.counted, |traffic| traffic.acked += acked);
    }

    /// A message is not for us: the server sets it aside, or drops it where nothing is set aside.
    pub(super) fn reject(&mut self, tag: u64) {
        let (number, tag) = parts(tag);
        let channel = self
            .channels
            .iter_mut()
            .find(|channel| channel.number == number);
        if channel.is_some_and(|channel| channel.reject(tag)) {
            self.shared
                .traffic
                .count(&self.counted, |traffic| traffic.nacked += 1);
        }
    }

    /// Gives back everything that is not answered, and takes nothing more before it is asked again.
    pub(super) fn pause(&mut self) {
        let is_quiet = |channel: &IntakeChannel| channel.is_done() && channel.credit() == 0;
        if self.channels.is_empty() || !self.channels.iter().all(is_quiet) {
            self.channels.clear();
            return;
        }
        // A slot is often free again in a moment; if none is, the channels are closed after all.
        lock(&self.parked).append(&mut self.channels);
        let parked = Arc::clone(&self.parked);
        tokio::spawn(async move {
            tokio::time::sleep(HOLD).await;
            let is_old = |since: Instant| since.elapsed() >= HOLD;
            lock(&parked).retain(|channel| !channel.held_since().is_some_and(is_old));
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
                    tag: whole(channel.number, tag),
                    body,
                });
            }
        }
        taken
    }

    /// Makes sure that the server sends about `most` messages ahead. Says when to look at it again.
    async fn open_for(&mut self, link: &Arc<Link>, most: usize) -> Result<Option<Instant>, String> {
        let most = most.min(MOST_AHEAD);
        let mut credit: usize = self.channels.iter().map(IntakeChannel::credit).sum();
        for channel in &mut self.channels {
            credit += channel.release(most.saturating_sub(credit));
        }
        if !self.channels.iter().all(IntakeChannel::is_done) {
            // The caller has not answered yet, so nothing can be closed; one who waits all the same gets another channel.
            if credit == 0 && self.channels.len() < MOST_CHANNELS {
                self.open(link, most).await?;
            }
            return Ok(None);
        }
        let now = Instant::now();
        self.excess_since = (credit > most).then(|| self.excess_since.unwrap_or(now));
        let held_since = self
            .channels
            .iter()
            .filter_map(IntakeChannel::held_since)
            .min();
        let again = [
            self.excess_since.map(|since| since + EXCESS),
            held_since.map(|since| since + HOLD),
        ];
        let again = again.into_iter().flatten().min();
        if credit * 2 < most || again.is_some_and(|at| at <= now) {
            self.channels.clear();
            self.excess_since = None;
            self.open(link, most).await?;
            return Ok(None);
        }
        Ok(again)
    }

    async fn open(&mut self, link: &Arc<Link>, ahead: usize) -> Result<(), String> {
        self.declare(link).await?;
        self.opened = after(self.opened);
        let opened = IntakeChannel::open(link, &self.queue, self.opened, ahead).await;
        self.channels.push(opened.map_err(|error| said(&error))?);
        link.watch_over(&self.ear);
        Ok(())
    }

    /// A lane is made before it is consumed. One that is there otherwise is for people to mend, and one that is away with a
    /// server of a cluster comes back with it; until then we wait.
    async fn declare(&self, link: &Link) -> Result<(), String> {
        let Some(lane) = self.lane.as_deref().filter(|lane| !link.has_declared(lane)) else {
            return Ok(());
        };
        loop {
            let channel = link
                .consuming
                .create_channel()
                .await
                .map_err(|error| said(&error))?;
            match declare_lane(
                &channel,
                &self.shared.names,
                self.shared.options.lanes,
                lane,
            )
            .await
            {
                Ok(()) => {
                    link.note_declared(lane);
                    return Ok(());
                }
                Err(Failure::Unavailable(why)) => return Err(why),
                Err(Failure::Differs(why) | Failure::Absent(why)) => {
                    tracing::error!(queue = lane, "no bells: {why}")
                }
            }
            tokio::select! {
                why = link.gone() => return Err(why),
                () = tokio::time::sleep(MEND) => {}
            }
        }
    }

    /// Waits until something has come, the link is gone, or it is time to look again.
    async fn wait(&mut self, link: &Link, until: Option<Instant>) {
        let _waiting = self.ear.wait();
        let consumers = self
            .channels
            .iter_mut()
            .map(|channel| channel.consumer.next());
        let (delivery, place, _) = tokio::select! {
            delivery = select_all(consumers) => delivery,
            _ = link.gone() => return,
            () = at(until) => return,
        };
        if let Some(channel) = self.channels.get_mut(place) {
            channel.arrived(delivery);
        }
        // Those that were sent together with it are about to arrive.
        tokio::task::yield_now().await;
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        lock(&self.parked).clear();
    }
}

/// The number of the channel that is opened next.
const fn after(number: u64) -> u64 {
    (number + 1) & LAST_CHANNEL
}

/// The tag that the caller sees, of a channel's number and the server's tag.
const fn whole(number: u64, tag: u64) -> u64 {
    (number << TAG_BITS) | tag
}

/// The channel's number and the server's tag.
const fn parts(tag: u64) -> (u64, u64) {
    (tag >> TAG_BITS, tag & ((1 << TAG_BITS) - 1))
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_finds_its_channel_however_many_were_opened() {
        let mut number = (1 << 24) - 3;
        for _ in 0..5 {
            number = after(number);
            assert_eq!(parts(whole(number, 7)), (number, 7));
        }
        assert_eq!(number, 2);
    }
}
