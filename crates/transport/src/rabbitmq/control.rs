//! What processes tell each other in passing: signals and news. Nothing is confirmed, and what cannot be sent at once is
//! dropped.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use async_trait::async_trait;
use futures::StreamExt;
use lapin::{
    BasicProperties, Channel, Consumer,
    options::{BasicConsumeOptions, BasicPublishOptions, QueueBindOptions, QueueDeclareOptions},
    types::FieldTable,
};
use longhaul_domain::contract::broker::{Signal, Signals};
use tokio::{
    sync::{
        broadcast::{self, error::RecvError},
        mpsc, oneshot,
    },
    time::timeout,
};

use super::{
    connection::Shared,
    link::{Link, lock},
    message,
    topology::{number, said, short, table},
};
use crate::names;

/// Signals that a listener may fall behind by.
pub(super) const MOST_SIGNALS: usize = 1_024;
/// Messages that wait to be sent: some seconds of them.
pub(super) const MOST_OUTBOUND: usize = 1_000;
/// Messages that wait in a process's own queue at the server; the oldest go first.
const MOST_WAITING: i32 = 1_000;
/// A message that is not written by then is lost.
const WRITE_TIME: Duration = Duration::from_secs(5);

/// Something to be sent without a confirm.
#[derive(Debug)]
pub(super) enum Outbound {
    Message {
        exchange: &'static str,
        headers: FieldTable,
        body: Vec<u8>,
    },
    /// Everything before it has been sent, or dropped.
    Flush(oneshot::Sender<()>),
}

/// Tells everybody: listeners of this process at once, the others by way of the server.
pub(super) fn tell(shared: &Shared, signal: &Signal) {
    let body = message::json(signal);
    if let Some(signals) = &*lock(&shared.signals) {
        let _ = signals.send(signal.clone());
        let message = Outbound::Message {
            exchange: names::CONTROL_EXCHANGE,
            headers: FieldTable::default(),
            body,
        };
        // It fails when the server is slow or away, and a signal is not worth waiting for.
        let _ = shared.outbound.try_send(message);
    }
}

/// Sends what comes until nobody can send any more.
pub(super) async fn send_all(shared: Weak<Shared>, mut outbound: mpsc::Receiver<Outbound>) {
    let mut open: Option<(u64, Channel)> = None;
    while let Some(next) = outbound.recv().await {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        match next {
            Outbound::Flush(done) => drop(done.send(())),
            Outbound::Message {
                exchange,
                headers,
                body,
            } => {
                let Ok(link) = shared.publishing_link() else {
                    continue;
                };
                let send = send(&shared, &link, &mut open, exchange, headers, body);
                let sent = tokio::select! {
                    sent = timeout(shared.patient(WRITE_TIME), send) => sent,
                    _ = shared.unpublishable(&link) => continue,
                };
                match sent {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => link.fail(said(&error)),
                    Err(_) => link.fail_unless_blocked("nothing can be written to it"),
                }
            }
        }
    }
}

async fn send(
    shared: &Shared,
    link: &Link,
    open: &mut Option<(u64, Channel)>,
    exchange: &str,
    headers: FieldTable,
    body: Vec<u8>,
) -> lapin::Result<()> {
    let channel = match open.take_if(|(number, _)| *number == link.number) {
        Some((_, channel)) => channel,
        None => link.publishing.create_channel().await?,
    };
    let properties = BasicProperties::default()
        .with_app_id(short(&shared.origin))
        .with_headers(headers);
    let exchange_name = short(&shared.names.full(exchange));
    channel
        .basic_publish(
            exchange_name,
            "".into(),
            BasicPublishOptions::default(),
            &body,
            properties,
        )
        .await?;
    shared
        .traffic
        .count(exchange, |traffic| traffic.published += 1);
    *open = Some((link.number, channel));
    Ok(())
}

/// Hears the signals of other processes for as long as the link lives.
pub(super) async fn listen(shared: &Arc<Shared>, link: &Arc<Link>) -> lapin::Result<()> {
    let mut consumer = private_queue(shared, link, names::CONTROL_EXCHANGE).await?;
    let (shared, link) = (Arc::clone(shared), Arc::clone(link));
    tokio::spawn(async move {
        while let Some(delivery) =
            next_of_others(&shared, &link, names::CONTROL_EXCHANGE, &mut consumer).await
        {
            match (
                serde_json::from_slice::<Signal>(&delivery.data),
                &*lock(&shared.signals),
            ) {
                (Ok(signal), Some(signals)) => drop(signals.send(signal)),
                (Ok(_), None) => return,
                (Err(error), _) => tracing::debug!(%error, "a signal of another version"),
            }
        }
    });
    Ok(())
}

/// A queue of this process alone, at an exchange that tells everybody. It goes with the link.
pub(super) async fn private_queue(
    shared: &Shared,
    link: &Link,
    exchange: &str,
) -> lapin::Result<Consumer> {
    let channel = link.consuming.create_channel().await?;
    let queue = short(
        &shared
            .names
            .full(&format!("{exchange}.{}-{}", shared.origin, link.number)),
    );
    let options = QueueDeclareOptions {
        exclusive: true,
        auto_delete: true,
        ..QueueDeclareOptions::default()
    };
    channel
        .queue_declare(
            queue.clone(),
            options,
            table(&[("x-max-length", number(MOST_WAITING))]),
        )
        .await?;
    let exchange = short(&shared.names.full(exchange));
    channel
        .queue_bind(
            queue.clone(),
            exchange,
            "".into(),
            QueueBindOptions::default(),
            FieldTable::default(),
        )
        .await?;
    let options = BasicConsumeOptions {
        no_ack: true,
        exclusive: true,
        ..BasicConsumeOptions::default()
    };
    channel
        .basic_consume(queue, "".into(), options, FieldTable::default())
        .await
}

/// The next message that is not our own; `None` when the link is gone.
pub(super) async fn next_of_others(
    shared: &Shared,
    link: &Link,
    counted: &str,
    consumer: &mut Consumer,
) -> Option<lapin::message::Delivery> {
    loop {
        let delivery = tokio::select! {
            delivery = consumer.next() => delivery,
            _ = link.gone() => return None,
        };
        match delivery {
            Some(Ok(delivery)) => {
                shared
                    .traffic
                    .count(counted, |traffic| traffic.delivered += 1);
                if delivery
                    .properties
                    .app_id()
                    .as_ref()
                    .map(lapin::types::ShortString::as_str)
                    != Some(&shared.origin)
                {
                    return Some(delivery);
                }
            }
            Some(Err(error)) => link.fail(said(&error)),
            None => link.fail(format!("it ended the consumer at {counted}")),
        }
    }
}

/// One listener. Without a receiver the broker was closed.
#[derive(Debug)]
pub(super) struct RabbitSignals(pub(super) Option<broadcast::Receiver<Signal>>);

#[async_trait]
impl Signals for RabbitSignals {
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
