//! One link to the server: two connections that are opened and given up together.
//!
//! Publishers and consumers have a connection each, because a server that is short of memory stops
//! reading from connections that publish. Any error of a channel ends the whole link, and another
//! is built: that is simpler to reason about than half a link.

use std::{collections::BTreeSet, future::pending, sync::Arc, time::Duration};

use lapin::{
    Channel, Connection, ConnectionProperties,
    options::{ConfirmSelectOptions, QueueDeclareOptions},
    protocol::AMQPSoftError,
    types::FieldTable,
};
use longhaul_domain::contract::broker::BrokerError;
use parking_lot::Mutex;
use tokio::{
    sync::{Mutex as AsyncMutex, Semaphore, SemaphorePermit, watch},
    time::timeout,
};

use super::{
    address::Address,
    topology::{is_soft, reason_of, short},
    watchdog::{ConsumerProbe, ConsumerProbes},
};

/// Batches that are published at the same time, each over a channel of its own.
const PUBLISHING_CHANNELS: usize = 4;
/// A server that does not answer a query within this time breaks the link.
pub(super) const QUERY_TIMEOUT: Duration = Duration::from_secs(3);
/// How long an orderly close of the connections may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Link {
    pub(super) number: u64,
    pub(super) publishing: Connection,
    pub(super) consuming: Connection,
    query_timeout: Duration,
    /// Why the link is broken, once it is.
    failure: watch::Sender<Option<String>>,
    /// Channels that no batch uses; locked for one push or pop.
    idle_channels: Mutex<Vec<Channel>>,
    publish_permits: Semaphore,
    /// Held during a query, so that one channel is enough for all queries.
    query_channel: AsyncMutex<Option<Channel>>,
    /// Task queues whose hint queues were declared over this link.
    /// Two consumers may both declare one, which does no harm.
    declared: Mutex<BTreeSet<String>>,
    /// The watchdog checks a copy, so that no query runs under the lock.
    probes: Mutex<ConsumerProbes>,
}

impl Link {
    pub(super) async fn connect(
        address: &Address,
        number: u64,
        query_timeout: Duration,
    ) -> Result<Self, String> {
        let connect = |purpose: &str| {
            let name = format!("longhaul {purpose}");
            let properties = ConnectionProperties::default().with_connection_name(name.into());
            Connection::connect_uri(address.uri(), properties)
        };
        let connected = tokio::try_join!(connect("publisher"), connect("consumer"));
        let (publishing, consuming) = connected.map_err(|error| reason_of(&error))?;

        Ok(Self {
            number,
            publishing,
            consuming,
            query_timeout,
            failure: watch::Sender::new(None),
            idle_channels: Mutex::default(),
            publish_permits: Semaphore::new(PUBLISHING_CHANNELS),
            query_channel: AsyncMutex::default(),
            declared: Mutex::default(),
            probes: Mutex::default(),
        })
    }

    /// Marks the link as broken. The first reason counts.
    pub(super) fn fail(&self, why: impl Into<String>) {
        self.failure.send_if_modified(|failure| {
            let is_first = failure.is_none();
            if is_first {
                *failure = Some(why.into());
            }
            is_first
        });
    }

    /// Like [`Self::fail`], unless the server has blocked the connection. A blocked server does not
    /// read an orderly close either, and a new link would be blocked as well.
    pub(super) fn fail_unless_blocked(&self, why: &str) {
        if !self.publishing.status().blocked() {
            self.fail(why);
        }
    }

    /// Waits until the link is broken. Returns the reason.
    pub(super) async fn failed(&self) -> String {
        let mut failure = self.failure.subscribe();
        match failure.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(why)) => why.clone(),
            Ok(None) | Err(_) => "it was given up".to_owned(),
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.publishing.status().connected() && self.consuming.status().connected()
    }

    /// A channel for declarations.
    pub(super) async fn channel(&self) -> Result<Channel, BrokerError> {
        let channel = self.consuming.create_channel().await;
        channel.map_err(|error| BrokerError::Unavailable(reason_of(&error)))
    }

    /// A channel for one batch of confirmed messages. A channel that worked is to be returned.
    pub(super) async fn publishing_channel(&self) -> lapin::Result<(SemaphorePermit<'_>, Channel)> {
        // The semaphore is never closed.
        let Ok(permit) = self.publish_permits.acquire().await else {
            return pending().await;
        };
        if let Some(channel) = self.idle_channels.lock().pop() {
            return Ok((permit, channel));
        }

        let channel = self.publishing.create_channel().await?;
        channel
            .confirm_select(ConfirmSelectOptions::default())
            .await?;

        Ok((permit, channel))
    }

    pub(super) fn return_channel(&self, channel: Channel) {
        self.idle_channels.lock().push(channel);
    }

    /// How many messages are in a queue; `None` when there is no such queue. A server that does not
    /// answer breaks the link.
    pub(super) async fn message_count(&self, queue: &str) -> Result<Option<usize>, BrokerError> {
        // A link that breaks answers at once instead of after the timeout.
        let answer = tokio::select! {
            answer = timeout(self.query_timeout, self.query(queue)) => answer,
            why = self.failed() => return Err(BrokerError::Unavailable(why)),
        };

        let why = match answer {
            Ok(Ok(messages)) => return Ok(messages),
            Ok(Err(error)) => reason_of(&error),
            Err(_) => format!("it has not answered for {} s", self.query_timeout.as_secs()),
        };
        self.fail(why.clone());

        Err(BrokerError::Unavailable(why))
    }

    async fn query(&self, queue: &str) -> lapin::Result<Option<usize>> {
        // The channel is taken out of the lock, so that a query that is cancelled drops it.
        let mut idle = self.query_channel.lock().await;
        let channel = match idle.take() {
            Some(channel) => channel,
            None => self.consuming.create_channel().await?,
        };

        let options = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        let declared = channel
            .queue_declare(short(queue), options, FieldTable::default())
            .await;

        match declared {
            Ok(queue) => {
                *idle = Some(channel);
                let messages = usize::try_from(queue.message_count());
                Ok(Some(messages.unwrap_or(usize::MAX)))
            }
            Err(error) if is_soft(&error, &AMQPSoftError::NOTFOUND) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(super) fn has_declared(&self, queue: &str) -> bool {
        self.declared.lock().contains(queue)
    }

    pub(super) fn note_declared(&self, queue: &str) {
        self.declared.lock().insert(queue.to_owned());
    }

    /// Makes the watchdog check a consumer for as long as it lives.
    pub(super) fn watch_consumer(&self, probe: &Arc<ConsumerProbe>) {
        self.probes.lock().add(probe);
    }

    pub(super) fn probes(&self) -> Vec<Arc<ConsumerProbe>> {
        self.probes.lock().alive()
    }

    /// Closes both connections in order, if the server still answers.
    pub(super) async fn close(&self) {
        self.fail("it was closed");
        let closed = futures::future::join(
            self.publishing.close(200, "bye".into()),
            self.consuming.close(200, "bye".into()),
        );
        // A close that fails or takes too long leaves nothing else to do.
        let _ = timeout(CLOSE_TIMEOUT, closed).await;
    }
}
