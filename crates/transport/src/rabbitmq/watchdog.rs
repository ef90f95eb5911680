//! Notices a server that has gone silent and a consumer that has gone deaf.
//!
//! A network that swallows everything breaks no connection; heartbeats notice after half a minute. And a consumer may be
//! open on both ends and still get nothing. So the server is asked every second, and a consumer that waits while its
//! queue has messages is not believed for long.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use longhaul_domain::contract::broker::BrokerError;
use tokio::time::{Instant, interval};

use super::{
    connection::Shared,
    link::{Link, lock},
};
use crate::names;

const ROUND: Duration = Duration::from_secs(1);
/// A consumer that waits for less than this is not looked at.
const PATIENCE: Duration = Duration::from_secs(3);
/// Looks at a waiting consumer beside a queue with messages, before it is deaf.
const LOOKS: u32 = 3;

/// What the watchdog knows of a consumer.
#[derive(Debug)]
pub(super) struct Ear {
    pub(super) queue: String,
    waiting_since: Mutex<Option<Instant>>,
}

/// A consumer waits for as long as this is there.
#[derive(Debug)]
pub(super) struct Waiting(Arc<Ear>);

impl Ear {
    pub(super) fn new(queue: String) -> Arc<Self> {
        Arc::new(Self {
            queue,
            waiting_since: Mutex::new(None),
        })
    }

    pub(super) fn wait(self: &Arc<Self>) -> Waiting {
        *lock(&self.waiting_since) = Some(Instant::now());
        Waiting(Arc::clone(self))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        *lock(&self.0.waiting_since) = None;
    }
}

/// The consumers of one link, each once: looking at one costs a question to the server.
#[derive(Debug, Default)]
pub(super) struct Ears(Vec<Weak<Ear>>);

impl Ears {
    /// Says again of a consumer that it is here, each time that it opens a channel.
    pub(super) fn add(&mut self, ear: &Arc<Ear>) {
        let ear = Arc::downgrade(ear);
        self.0
            .retain(|known| known.strong_count() > 0 && !known.ptr_eq(&ear));
        self.0.push(ear);
    }

    pub(super) fn alive(&self) -> Vec<Arc<Ear>> {
        self.0.iter().filter_map(Weak::upgrade).collect()
    }
}

/// Watches a link until it is broken, or breaks it.
pub(super) async fn watch(shared: Arc<Shared>, link: Arc<Link>) {
    let mut rounds = interval(ROUND);
    let mut suspects = HashMap::new();
    loop {
        tokio::select! {
            _ = rounds.tick() => {}
            _ = link.gone() => return,
        }
        if look(&shared, &link, &mut suspects).await.is_err() {
            return;
        }
    }
}

/// When a consumer began to wait, and how often it was seen waiting beside messages since.
type Suspects = HashMap<usize, (Instant, u32)>;

async fn look(shared: &Shared, link: &Link, suspects: &mut Suspects) -> Result<(), BrokerError> {
    if link
        .counts(&shared.names.full(names::DEAD_LETTER_QUEUE))
        .await?
        .is_none()
    {
        link.fail("its queues were deleted");
        return Ok(());
    }
    let mut seen = Suspects::new();
    for ear in link.ears() {
        let Some(since) = *lock(&ear.waiting_since) else {
            continue;
        };
        if since.elapsed() < shared.patient(PATIENCE)
            || link
                .counts(&ear.queue)
                .await?
                .is_none_or(|counts| counts.messages == 0)
        {
            continue;
        }
        let key = Arc::as_ptr(&ear).addr();
        let looks = suspects
            .get(&key)
            .filter(|(before, _)| *before == since)
            .map_or(0, |(_, looks)| *looks)
            + 1;
        if looks >= LOOKS {
            link.fail(format!(
                "a consumer of {} has gone deaf: messages wait and none comes",
                ear.queue
            ));
            return Ok(());
        }
        seen.insert(key, (since, looks));
    }
    *suspects = seen;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumer_that_opens_again_and_again_is_watched_once() {
        let mut ears = Ears::default();
        let [first, second] = ["a", "b"].map(|queue| Ear::new(queue.to_owned()));
        for _ in 0..100 {
            ears.add(&first);
            ears.add(&second);
        }
        assert_eq!(ears.alive().len(), 2);
        drop(first);
        ears.add(&second);
        assert_eq!(ears.0.len(), 1, "what is gone is forgotten");
    }
}
