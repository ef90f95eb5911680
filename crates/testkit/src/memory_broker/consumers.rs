//! The consumers of the broker in memory.

use std::{future::pending, sync::Arc};

use async_trait::async_trait;
use longhaul_domain::contract::broker::{
    Delivery, HintConsumer, ProgressInbox, ProgressReport, Signal, Signals,
};
use tokio::{
    sync::{
        broadcast::{Receiver, error::RecvError},
        watch,
    },
    time::{Instant, sleep_until},
};

use super::{HintQueue, PROGRESS_QUEUE, Shared, traffic_name};

#[derive(Debug)]
pub(super) struct MemoryHintConsumer {
    shared: Arc<Shared>,
    changes: watch::Receiver<u64>,
    queue: String,
    /// The tags of the hints that this consumer has not answered.
    tags: Vec<u64>,
}

impl MemoryHintConsumer {
    pub(super) fn new(shared: &Arc<Shared>, queue: &str) -> Self {
        Self {
            shared: Arc::clone(shared),
            changes: shared.changes(),
            queue: queue.to_owned(),
            tags: Vec::new(),
        }
    }

    fn take(&mut self, most: usize) -> Vec<Delivery> {
        if self.shared.check_up().is_err() {
            return Vec::new();
        }

        let taken = self.shared.contents().deliver(&self.queue, most);
        self.tags.extend(taken.iter().map(|(tag, _)| *tag));

        taken
            .into_iter()
            .map(|(tag, hint)| Delivery { hint, tag })
            .collect()
    }

    fn next_due(&self) -> Option<Instant> {
        let contents = self.shared.contents();
        let queue = contents.hint_queues.get(&self.queue);
        queue.and_then(HintQueue::next_due)
    }

    fn give_back(&mut self) {
        if let Some(queue) = self.shared.contents().hint_queues.get_mut(&self.queue) {
            self.tags.drain(..).for_each(|tag| queue.take_back(tag));
        }

        self.shared.notify();
    }
}

#[async_trait]
impl HintConsumer for MemoryHintConsumer {
    async fn next(&mut self, most: usize) -> Vec<Delivery> {
        loop {
            // Mark the changes as seen before looking, so that none between the two is lost.
            self.changes.borrow_and_update();
            let taken = self.take(most);
            if !taken.is_empty() || most == 0 {
                return taken;
            }

            let due = self.next_due();
            tokio::select! {
                () = changed(&mut self.changes) => {}
                () = until(due) => {}
            }
        }
    }

    async fn answered(&mut self, tags: &[u64]) {
        let mut contents = self.shared.contents();
        let known: Vec<u64> = self.tags.extract_if(.., |tag| tags.contains(tag)).collect();

        if let Some(queue) = contents.hint_queues.get_mut(&self.queue) {
            let acknowledged = known.into_iter().filter(|tag| queue.acknowledge(*tag));
            let count = acknowledged.count() as u64;
            contents.traffic_of(&traffic_name(&self.queue)).acked += count;
        }
    }

    async fn pause(&mut self) {
        self.give_back();
    }
}

impl Drop for MemoryHintConsumer {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Waits for the next change; for ever once the broker is gone.
async fn changed(changes: &mut watch::Receiver<u64>) {
    if changes.changed().await.is_err() {
        pending().await
    }
}

/// Waits until the moment; for ever when there is none.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}

#[derive(Debug)]
pub(super) struct MemoryInbox {
    shared: Arc<Shared>,
    changes: watch::Receiver<u64>,
    unacknowledged: Vec<(u64, ProgressReport)>,
}

impl MemoryInbox {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            changes: shared.changes(),
            unacknowledged: Vec::new(),
        }
    }

    fn take(&mut self, most: usize) -> Vec<(u64, ProgressReport)> {
        if self.shared.check_up().is_err() {
            return Vec::new();
        }

        let mut contents = self.shared.contents();
        let most = most.min(contents.progress.len());
        let taken: Vec<_> = contents.progress.drain(..most).collect();
        contents.traffic_of(PROGRESS_QUEUE).delivered += taken.len() as u64;
        self.unacknowledged.extend(taken.iter().cloned());

        taken
    }
}

#[async_trait]
impl ProgressInbox for MemoryInbox {
    async fn next(&mut self, most: usize) -> Vec<(u64, ProgressReport)> {
        loop {
            // Mark the changes as seen before looking, so that none between the two is lost.
            self.changes.borrow_and_update();
            let taken = self.take(most);
            if !taken.is_empty() || most == 0 {
                return taken;
            }

            changed(&mut self.changes).await;
        }
    }

    async fn answered(&mut self, tags: &[u64]) {
        let answered = self
            .unacknowledged
            .extract_if(.., |(tag, _)| tags.contains(tag));
        let count = answered.count() as u64;
        self.shared.contents().traffic_of(PROGRESS_QUEUE).acked += count;
    }
}

impl Drop for MemoryInbox {
    fn drop(&mut self) {
        let mut contents = self.shared.contents();
        while let Some(report) = self.unacknowledged.pop() {
            contents.progress.push_front(report);
        }
        drop(contents);

        self.shared.notify();
    }
}

/// `None` when the broker was closed before the listener came.
#[derive(Debug)]
pub(super) struct MemorySignals(Option<Receiver<Signal>>);

impl MemorySignals {
    pub(super) const fn new(receiver: Option<Receiver<Signal>>) -> Self {
        Self(receiver)
    }
}

#[async_trait]
impl Signals for MemorySignals {
    async fn next(&mut self) -> Option<Signal> {
        let receiver = self.0.as_mut()?;
        loop {
            match receiver.recv().await {
                Ok(signal) => return Some(signal),
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    }
}
