//! The broker contract, each call in terms of the parts.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use longhaul_domain::{
    Invalid,
    contract::broker::{
        Bell, Bells, Broker, BrokerError, BrokerState, ProgressInbox, ProgressReport, Published,
        Signal, Signals, Traffic,
    },
    event::OutboxMessage,
};
use tokio::{
    sync::{broadcast, mpsc, oneshot},
    time::timeout,
};

use super::{
    address::Address,
    bells::RabbitBells,
    cloud_event,
    connection::{self, Shared},
    control::{self, Outbound, RabbitSignals},
    link::lock,
    message,
    options::RabbitOptions,
    progress::RabbitInbox,
    publisher::{self, Outgoing},
    topology::check_lane,
};
use crate::names;

/// For declaring everything on a busy server.
const DECLARE_TIME: Duration = Duration::from_secs(10);
/// For sending what waits and for saying goodbye, when the broker is closed.
const CLOSE_TIME: Duration = Duration::from_secs(2);

/// RabbitMQ. Dropping it closes the link.
#[derive(Debug)]
pub struct RabbitBroker {
    pub(super) shared: Arc<Shared>,
}

impl RabbitBroker {
    /// Checks what it is given and returns at once. The link is made in the background, and again whenever it breaks.
    /// Must be called on a tokio runtime.
    pub fn connect(url: &str, options: RabbitOptions) -> Result<Arc<Self>, Invalid> {
        Self::connect_patiently(url, options, Duration::ZERO)
    }

    /// As [`Self::connect`], for whoever would rather wait so long for any answer of the server than take it for dead.
    pub fn connect_patiently(
        url: &str,
        options: RabbitOptions,
        patience: Duration,
    ) -> Result<Arc<Self>, Invalid> {
        let address = Address::parse(url)?;
        options.check()?;
        let (outbound, to_send) = mpsc::channel(control::MOST_OUTBOUND);
        let shared = Arc::new(Shared::new(address, options, patience, outbound));
        tokio::spawn(control::send_all(Arc::downgrade(&shared), to_send));
        tokio::spawn(connection::keep(Arc::clone(&shared)));
        Ok(Arc::new(Self { shared }))
    }

    /// As [`Broker::depth`], and makes nothing: `None` when there is no lane.
    pub async fn look(&self, queue: &str) -> Result<Option<usize>, BrokerError> {
        check_lane(queue).map_err(BrokerError::Topology)?;
        let link = self.shared.asking_link().await?;
        let counts = link
            .counts(&self.shared.names.full(&names::lane(queue)))
            .await?;
        Ok(counts.map(|counts| counts.messages))
    }

    /// Publishes those that can be published, and answers for all.
    async fn publish_some(&self, messages: Vec<Result<Outgoing, String>>) -> Vec<Published> {
        let mut refusals = Vec::with_capacity(messages.len());
        let mut outgoing = Vec::with_capacity(messages.len());
        for message in messages {
            refusals.push(message.map(|message| outgoing.push(message)).err());
        }
        let mut answers = publisher::publish(&self.shared, &outgoing)
            .await
            .into_iter();
        let answer = |refusal: Option<String>| match refusal {
            Some(why) => Published::Refused(why),
            None => answers
                .next()
                .unwrap_or_else(|| Published::Unknown("it was not published".to_owned())),
        };
        refusals.into_iter().map(answer).collect()
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
            check_lane(queue).map_err(BrokerError::Topology)?;
        }
        let link = self.shared.asking_link().await?;
        let declare_time = self.shared.patient(DECLARE_TIME);
        tokio::select! {
            declared = timeout(declare_time, self.shared.declare(&link, queues)) => declared.unwrap_or_else(|_| {
                Err(BrokerError::Unavailable(format!("nothing was declared within {} s", declare_time.as_secs())))
            }),
            why = link.gone() => Err(BrokerError::Unavailable(why)),
        }
    }

    async fn ring(&self, bells: &[Bell]) -> Vec<Published> {
        let names = &self.shared.names;
        let message =
            |bell: &Bell| check_lane(&bell.queue).map(|()| message::of_bell(names, bell, 0));
        self.publish_some(bells.iter().map(message).collect()).await
    }

    async fn ring_later(&self, bells: &[(Bell, u64)]) -> Vec<Published> {
        let names = &self.shared.names;
        let message = |(bell, delay_ms): &(Bell, u64)| {
            check_lane(&bell.queue).map(|()| message::of_bell(names, bell, *delay_ms))
        };
        self.publish_some(bells.iter().map(message).collect()).await
    }

    async fn depth(&self, queue: &str) -> Result<usize, BrokerError> {
        if let Some(messages) = self.look(queue).await? {
            return Ok(messages);
        }
        self.declare(&[queue.to_owned()]).await?;
        Ok(0)
    }

    fn bells(&self, queue: &str) -> Box<dyn Bells> {
        Box::new(RabbitBells::new(&self.shared, queue))
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
        control::tell(&self.shared, &signal);
    }

    fn signals(&self) -> Box<dyn Signals> {
        Box::new(RabbitSignals(
            lock(&self.shared.signals)
                .as_ref()
                .map(broadcast::Sender::subscribe),
        ))
    }

    async fn report_progress(&self, reports: &[ProgressReport]) -> Vec<Published> {
        let names = &self.shared.names;
        self.publish_some(
            reports
                .iter()
                .map(|report| message::of_report(names, report))
                .collect(),
        )
        .await
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
        let (done, sent) = oneshot::channel();
        let flushed = async {
            if self
                .shared
                .outbound
                .send(Outbound::Flush(done))
                .await
                .is_ok()
            {
                let _ = sent.await;
            }
        };
        let _ = timeout(CLOSE_TIME, flushed).await;
        lock(&self.shared.signals).take();
        self.shared.closed.cancel();
        let _ = timeout(CLOSE_TIME, self.shared.gone()).await;
    }
}
