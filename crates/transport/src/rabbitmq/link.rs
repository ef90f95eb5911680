//! One link to the server: two connections that live and die together.
//!
//! Publishers and consumers have a connection each, for a server that is short of memory stops reading from those that
//! publish. Any error of a channel ends the whole link, and another is built: half a link is what nobody can reason
//! about.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use lapin::{
    Channel, Connection, ConnectionProperties,
    options::{ConfirmSelectOptions, QueueDeclareOptions},
    protocol::AMQPSoftError,
    types::FieldTable,
};
use longhaul_domain::contract::broker::BrokerError;
use tokio::{
    sync::{Mutex as AsyncMutex, Semaphore, SemaphorePermit, watch},
    time::timeout,
};

use super::{
    address::Address,
    topology,
    watchdog::{Ear, Ears},
};

/// Batches that are published at the same time, each over a channel of its own.
const PUBLISHING_CHANNELS: usize = 4;
/// A question to the server is answered within this time, or the link is dead.
pub(super) const ANSWER_TIME: Duration = Duration::from_secs(3);
/// A connection is closed in order within this time, or left alone.
const CLOSE_TIME: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Link {
    pub(super) number: u64,
    pub(super) publishing: Connection,
    pub(super) consuming: Connection,
    answer_time: Duration,
    broken: watch::Sender<Option<String>>,
    idle_channels: Mutex<Vec<Channel>>,
    slots: Semaphore,
    questions: AsyncMutex<Option<Channel>>,
    /// Queues of tasks whose lanes were made over this link.
    declared: Mutex<BTreeSet<String>>,
    ears: Mutex<Ears>,
}

/// What the server counts in a queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counts {
    pub(super) messages: usize,
}

impl Link {
    pub(super) async fn connect(
        address: &Address,
        number: u64,
        answer_time: Duration,
    ) -> Result<Self, String> {
        let connect = |purpose: &str| {
            let name = format!("longhaul {purpose}");
            let properties = ConnectionProperties::default().with_connection_name(name.into());
            Connection::connect_uri(address.uri(), properties)
        };
        let connected = tokio::try_join!(connect("publisher"), connect("consumer"));
        let (publishing, consuming) = connected.map_err(|error| topology::said(&error))?;
        Ok(Self {
            number,
            publishing,
            consuming,
            answer_time,
            broken: watch::Sender::new(None),
            idle_channels: Mutex::default(),
            slots: Semaphore::new(PUBLISHING_CHANNELS),
            questions: AsyncMutex::default(),
            declared: Mutex::default(),
            ears: Mutex::default(),
        })
    }

    /// The link is no good any more; whoever sees it says so, and the first one is believed.
    pub(super) fn fail(&self, why: impl Into<String>) {
        self.broken.send_if_modified(|broken| {
            let is_first = broken.is_none();
            if is_first {
                *broken = Some(why.into());
            }
            is_first
        });
    }

    /// As [`Self::fail`]. A server that takes no messages hears no goodbye either, and a new link would fare no better.
    pub(super) fn fail_unless_blocked(&self, why: &str) {
        if !self.publishing.status().blocked() {
            self.fail(why);
        }
    }

    /// Waits until the link is broken, and says why.
    pub(super) async fn gone(&self) -> String {
        let mut broken = self.broken.subscribe();
        let why = broken
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|why| why.clone());
        why.unwrap_or_else(|| "it was given up".to_owned())
    }

    pub(super) fn is_connected(&self) -> bool {
        self.publishing.status().connected() && self.consuming.status().connected()
    }

    /// A channel to declare things with.
    pub(super) async fn channel(&self) -> Result<Channel, BrokerError> {
        self.consuming
            .create_channel()
            .await
            .map_err(|error| BrokerError::Unavailable(topology::said(&error)))
    }

    /// A channel for one batch of confirmed messages. Whoever saw it work gives it back.
    pub(super) async fn publishing_channel(&self) -> lapin::Result<(SemaphorePermit<'_>, Channel)> {
        // The semaphore is never closed.
        let Ok(permit) = self.slots.acquire().await else {
            return std::future::pending().await;
        };
        if let Some(channel) = lock(&self.idle_channels).pop() {
            return Ok((permit, channel));
        }
        let channel = self.publishing.create_channel().await?;
        channel
            .confirm_select(ConfirmSelectOptions::default())
            .await?;
        Ok((permit, channel))
    }

    pub(super) fn give_back(&self, channel: Channel) {
        lock(&self.idle_channels).push(channel);
    }

    /// Asks what is in a queue; `None` when there is no such queue. A server that does not answer breaks the link.
    pub(super) async fn counts(&self, queue: &str) -> Result<Option<Counts>, BrokerError> {
        let asked = tokio::select! {
            asked = timeout(self.answer_time, self.ask(queue)) => asked,
            why = self.gone() => return Err(BrokerError::Unavailable(why)),
        };
        let why = match asked {
            Ok(Ok(counts)) => return Ok(counts),
            Ok(Err(error)) => topology::said(&error),
            Err(_) => format!("it has not answered for {} s", self.answer_time.as_secs()),
        };
        self.fail(why.clone());
        Err(BrokerError::Unavailable(why))
    }

    async fn ask(&self, queue: &str) -> lapin::Result<Option<Counts>> {
        // Taken out, so that a question that is given up in the middle takes its channel with it.
        let mut questions = self.questions.lock().await;
        let channel = match questions.take() {
            Some(channel) => channel,
            None => self.consuming.create_channel().await?,
        };
        let options = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        match channel
            .queue_declare(topology::short(queue), options, FieldTable::default())
            .await
        {
            Ok(answer) => {
                *questions = Some(channel);
                Ok(Some(Counts {
                    messages: usize::try_from(answer.message_count()).unwrap_or(usize::MAX),
                }))
            }
            Err(error) if topology::is_soft(&error, &AMQPSoftError::NOTFOUND) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn has_declared(&self, queue: &str) -> bool {
        lock(&self.declared).contains(queue)
    }

    pub(super) fn note_declared(&self, queue: &str) {
        lock(&self.declared).insert(queue.to_owned());
    }

    /// A consumer that is to be watched for as long as it lives.
    pub(super) fn watch_over(&self, ear: &Arc<Ear>) {
        lock(&self.ears).add(ear);
    }

    pub(super) fn ears(&self) -> Vec<Arc<Ear>> {
        lock(&self.ears).alive()
    }

    /// Closes both connections in order, if the server is there to hear it.
    pub(super) async fn close(&self) {
        self.fail("it was closed");
        let closed = futures::future::join(
            self.publishing.close(200, "bye".into()),
            self.consuming.close(200, "bye".into()),
        );
        let _ = timeout(CLOSE_TIME, closed).await;
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
