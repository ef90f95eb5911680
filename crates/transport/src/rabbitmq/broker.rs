//! The broker contract on RabbitMQ.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use longhaul_domain::{
    Invalid,
    contract::broker::{
        Broker, BrokerError, BrokerState, Hint, HintConsumer, ProgressInbox, ProgressReport,
        Published, Signal, Signals, Traffic,
    },
    event::OutboxMessage,
};
use tokio::{
    sync::{broadcast, mpsc, oneshot},
    time::timeout,
};

use super::{
    address::Address,
    cloud_event,
    connection::{self, Shared},
    control::{self, Outbound, RabbitSignals},
    hints::RabbitHintConsumer,
    message,
    options::RabbitOptions,
    progress::RabbitInbox,
    publisher::{self, Outgoing},
    topology::check_queue_name,
};
use crate::names;

/// How long declaring everything may take on a busy server.
const DECLARE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long closing may wait for messages to be sent, and for the connections to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// RabbitMQ. Dropping it closes the link.
#[derive(Debug)]
pub struct RabbitBroker {
    pub(super) shared: Arc<Shared>,
}

impl RabbitBroker {
    /// Checks the arguments and returns at once. Connects in the background, and again whenever the
    /// link breaks. Must be called on a tokio runtime.
    pub fn connect(url: &str, options: RabbitOptions) -> Result<Arc<Self>, Invalid> {
        Self::connect_with_timeout(url, options, Duration::ZERO)
    }

    /// Like [`Self::connect`], but no time limit for the server is shorter than `min_timeout`.
    pub fn connect_with_timeout(
        url: &str,
        options: RabbitOptions,
        min_timeout: Duration,
    ) -> Result<Arc<Self>, Invalid> {
        let address = Address::parse(url)?;
        options.check()?;

        let (outbound, to_send) = mpsc::channel(control::MAX_OUTBOUND);
        let shared = Arc::new(Shared::new(address, options, min_timeout, outbound));
        // The sender has a weak reference, so that it ends once the broker is dropped.
        tokio::spawn(control::run_sender(Arc::downgrade(&shared), to_send));
        // This one ends when dropping the broker cancels `closed`.
        tokio::spawn(connection::maintain(Arc::clone(&shared)));

        Ok(Arc::new(Self { shared }))
    }

    /// Like [`Broker::depth`], but declares nothing: `None` when there is no queue.
    pub async fn existing_depth(&self, queue: &str) -> Result<Option<usize>, BrokerError> {
        check_queue_name(queue).map_err(BrokerError::Topology)?;
        let link = self.shared.declaring_link().await?;
        let name = self.shared.names.full(&names::hint_queue(queue));
        link.message_count(&name).await
    }

    /// Publishes the messages that could be built. Returns an answer for each.
    async fn publish_built(&self, messages: Vec<Result<Outgoing, String>>) -> Vec<Published> {
        let mut refusals = Vec::with_capacity(messages.len());
        let mut outgoing = Vec::with_capacity(messages.len());
        for message in messages {
            refusals.push(message.map(|message| outgoing.push(message)).err());
        }

        let published = publisher::publish(&self.shared, &outgoing).await;
        let mut published = published.into_iter();
        let answer = |refusal: Option<String>| match refusal {
            Some(why) => Published::Refused(why),
            None => published
                .next()
                .unwrap_or_else(|| Published::Unknown("it was not published".to_owned())),
        };

        refusals.into_iter().map(answer).collect()
    }

    async fn publish_delayed<'h>(
        &self,
        hints: impl Iterator<Item = (&'h Hint, u64)> + Send,
    ) -> Vec<Published> {
        let names = &self.shared.names;
        let build = |(hint, delay_ms): (&Hint, u64)| {
            check_queue_name(&hint.queue)?;
            Ok(message::of_hint(names, hint, delay_ms))
        };
        let messages = hints.map(build).collect();

        self.publish_built(messages).await
    }
}

impl Drop for RabbitBroker {
    fn drop(&mut self) {
        self.shared.closed.cancel();
    }
}

#[async_trait]
impl Broker for RabbitBroker {
    async fn declare(&self, queues: &[String]) -> Result<(), BrokerError> {
        for queue in queues {
            check_queue_name(queue).map_err(BrokerError::Topology)?;
        }

        let link = self.shared.declaring_link().await?;
        let limit = self.shared.at_least(DECLARE_TIMEOUT);
        // A link that breaks answers at once instead of after the timeout.
        let declared = tokio::select! {
            declared = timeout(limit, self.shared.declare(&link, queues)) => declared,
            why = link.failed() => return Err(BrokerError::Unavailable(why)),
        };

        declared.unwrap_or_else(|_| {
            let why = format!("nothing was declared within {} s", limit.as_secs());
            Err(BrokerError::Unavailable(why))
        })
    }

    async fn publish_hints(&self, hints: &[Hint]) -> Vec<Published> {
        self.publish_delayed(hints.iter().map(|hint| (hint, 0)))
            .await
    }

    async fn publish_hints_later(&self, hints: &[(Hint, u64)]) -> Vec<Published> {
        self.publish_delayed(hints.iter().map(|(hint, delay_ms)| (hint, *delay_ms)))
            .await
    }

    async fn depth(&self, queue: &str) -> Result<usize, BrokerError> {
        if let Some(messages) = self.existing_depth(queue).await? {
            return Ok(messages);
        }

        self.declare(&[queue.to_owned()]).await?;
        Ok(0)
    }

    fn hints(&self, queue: &str) -> Box<dyn HintConsumer> {
        Box::new(RabbitHintConsumer::new(&self.shared, queue))
    }

    async fn publish(&self, messages: &[OutboxMessage]) -> Vec<Published> {
        let names = &self.shared.names;
        let source = match self.shared.options.namespace.as_str() {
            "" => "/longhaul".to_owned(),
            namespace => format!("/longhaul/{namespace}"),
        };

        let outgoing: Vec<_> = messages
            .iter()
            .map(|row| cloud_event::of_outbox(names, &source, row))
            .collect();

        publisher::publish(&self.shared, &outgoing).await
    }

    fn signal(&self, signal: Signal) {
        control::send_signal(&self.shared, &signal);
    }

    fn signals(&self) -> Box<dyn Signals> {
        let signals = self.shared.signals.lock();
        let receiver = signals.as_ref().map(broadcast::Sender::subscribe);
        Box::new(RabbitSignals(receiver))
    }

    async fn report_progress(&self, reports: &[ProgressReport]) -> Vec<Published> {
        let names = &self.shared.names;
        let messages = reports
            .iter()
            .map(|report| message::of_report(names, report))
            .collect();

        self.publish_built(messages).await
    }

    fn progress_inbox(&self) -> Box<dyn ProgressInbox> {
        Box::new(RabbitInbox::new(&self.shared))
    }

    fn state(&self) -> BrokerState {
        self.shared.state()
    }

    async fn state_after(&self, known: &BrokerState) -> BrokerState {
        self.shared.state_after(known).await
    }

    fn traffic(&self) -> Vec<(String, Traffic)> {
        self.shared.traffic.read()
    }

    async fn close(&self) {
        let (done, flushed) = oneshot::channel();
        let flush = async {
            let sent = self.shared.outbound.send(Outbound::Flush(done)).await;
            if sent.is_ok() {
                let _ = flushed.await;
            }
        };

        // The order matters: messages are sent before the link is closed. What takes too long is
        // lost, as it may be at any time.
        let _ = timeout(CLOSE_TIMEOUT, flush).await;
        self.shared.signals.lock().take();
        self.shared.closed.cancel();
        let _ = timeout(CLOSE_TIMEOUT, self.shared.closed_down()).await;
    }
}
