//! Those who consume from the broker in memory.

use std::sync::Arc;

use async_trait::async_trait;
use longhaul_domain::contract::broker::{
    Bells, Delivery, ProgressInbox, ProgressReport, Signal, Signals,
};
use tokio::{
    sync::{
        broadcast::{Receiver, error::RecvError},
        watch,
    },
    time::{Instant, sleep_until},
};

use super::broker::{Lane, Shelf};
use crate::names;

#[derive(Debug)]
pub(super) struct MemoryBells {
    shelf: Arc<Shelf>,
    changes: watch::Receiver<u64>,
    queue: String,
    /// What this consumer has in its hands.
    tags: Vec<u64>,
}

impl MemoryBells {
    pub(super) fn new(shelf: &Arc<Shelf>, queue: &str) -> Self {
        Self {
            shelf: Arc::clone(shelf),
            changes: shelf.changes(),
            queue: queue.to_owned(),
            tags: Vec::new(),
        }
    }

    fn take(&mut self, most: usize) -> Vec<Delivery> {
        if self.shelf.reach().is_err() {
            return Vec::new();
        }
        let taken = self.shelf.inner().take(&self.queue, most);
        self.tags.extend(taken.iter().map(|(tag, _)| *tag));
        taken
            .into_iter()
            .map(|(tag, bell)| Delivery { bell, tag })
            .collect()
    }

    fn give_back(&mut self) {
        if let Some(lane) = self.shelf.inner().lanes.get_mut(&self.queue) {
            self.tags.drain(..).for_each(|tag| lane.take_back(tag));
        }
        self.shelf.tell();
    }
}

#[async_trait]
impl Bells for MemoryBells {
    async fn next(&mut self, most: usize) -> Vec<Delivery> {
        loop {
            self.changes.borrow_and_update();
            let taken = self.take(most);
            if !taken.is_empty() || most == 0 {
                return taken;
            }
            let ripe = self
                .shelf
                .inner()
                .lanes
                .get(&self.queue)
                .and_then(Lane::next_ripe);
            tokio::select! {
                changed = self.changes.changed() => if changed.is_err() { std::future::pending().await },
                () = at(ripe) => {}
            }
        }
    }

    async fn answered(&mut self, tags: &[u64]) {
        let mut inner = self.shelf.inner();
        let known = self
            .tags
            .extract_if(.., |tag| tags.contains(tag))
            .collect::<Vec<_>>();
        if let Some(lane) = inner.lanes.get_mut(&self.queue) {
            let answered = known.into_iter().filter(|tag| lane.answered(*tag)).count();
            inner.traffic_of(&names::lane(&self.queue)).acked += answered as u64;
        }
    }

    async fn pause(&mut self) {
        self.give_back();
    }
}

impl Drop for MemoryBells {
    fn drop(&mut self) {
        self.give_back();
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

#[derive(Debug)]
pub(super) struct MemoryInbox {
    shelf: Arc<Shelf>,
    changes: watch::Receiver<u64>,
    in_hand: Vec<(u64, ProgressReport)>,
}

impl MemoryInbox {
    pub(super) fn new(shelf: &Arc<Shelf>) -> Self {
        Self {
            shelf: Arc::clone(shelf),
            changes: shelf.changes(),
            in_hand: Vec::new(),
        }
    }

    fn take(&mut self, most: usize) -> Vec<(u64, ProgressReport)> {
        if self.shelf.reach().is_err() {
            return Vec::new();
        }
        let mut inner = self.shelf.inner();
        let most = most.min(inner.progress.len());
        let taken: Vec<_> = inner.progress.drain(..most).collect();
        inner.traffic_of(names::PROGRESS_QUEUE).delivered += taken.len() as u64;
        self.in_hand.extend(taken.iter().cloned());
        taken
    }
}

#[async_trait]
impl ProgressInbox for MemoryInbox {
    async fn next(&mut self, most: usize) -> Vec<(u64, ProgressReport)> {
        loop {
            self.changes.borrow_and_update();
            let taken = self.take(most);
            if !taken.is_empty() || most == 0 {
                return taken;
            }
            if self.changes.changed().await.is_err() {
                std::future::pending().await
            }
        }
    }

    async fn answered(&mut self, tags: &[u64]) {
        let answered = self
            .in_hand
            .extract_if(.., |(tag, _)| tags.contains(tag))
            .count();
        self.shelf.inner().traffic_of(names::PROGRESS_QUEUE).acked += answered as u64;
    }
}

impl Drop for MemoryInbox {
    fn drop(&mut self) {
        let mut inner = self.shelf.inner();
        while let Some(report) = self.in_hand.pop() {
            inner.progress.push_front(report);
        }
        drop(inner);
        self.shelf.tell();
    }
}

/// Without a receiver the broker was closed.
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
