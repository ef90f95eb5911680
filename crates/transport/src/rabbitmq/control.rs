//! What processes broadcast to one another: signals and task events. Nothing is confirmed, and what
//! cannot be sent at once is dropped.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use async_trait::async_trait;
use futures::StreamExt;
use lapin::{
    BasicProperties, Channel, Consumer,
    message::Delivery,
    options::{BasicConsumeOptions, BasicPublishOptions, QueueBindOptions, QueueDeclareOptions},
    types::{FieldTable, ShortString},
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
    link::Link,
    message,
    topology::{number, reason_of, short, table},
};
use crate::names;

/// How many signals a listener may lag behind.
pub(super) const SIGNAL_BUFFER: usize = 1_024;
/// The most messages that wait to be sent: some seconds of them.
pub(super) const MAX_OUTBOUND: usize = 1_000;
/// The most messages that wait in a process's own queue at the server. The oldest are dropped.
const MAX_WAITING: i32 = 1_000;
/// A message that is not written within this time is lost.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Something to send without a confirm.
#[derive(Debug)]
pub(super) enum Outbound {
    Message {
        exchange: &'static str,
        headers: FieldTable,
        body: Vec<u8>,
    },
    /// Answers once everything before it was sent or dropped.
    Flush(oneshot::Sender<()>),
}

/// Sends a signal to the listeners of this process at once, and to the others through the server.
pub(super) fn send_signal(shared: &Shared, signal: &Signal) {
    let Some(signals) = &*shared.signals.lock() else {
        return;
    };

    // Sending fails when there is no listener here, which is no error.
    let _ = signals.send(signal.clone());
    // It also fails when the server is slow or down. A signal is not worth waiting for.
    let _ = shared.outbound.try_send(Outbound::Message {
        exchange: names::CONTROL_EXCHANGE,
        headers: FieldTable::default(),
        body: message::json(signal),
    });
}

/// Sends messages until there is no sender any more.
pub(super) async fn run_sender(shared: Weak<Shared>, mut outbound: mpsc::Receiver<Outbound>) {
    let mut channel = None;
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
            } => send_within_timeout(&shared, &mut channel, exchange, headers, body).await,
        }
    }
}

/// The sender's channel, with the number of its link.
type OpenChannel = Option<(u64, Channel)>;

async fn send_within_timeout(
    shared: &Shared,
    channel: &mut OpenChannel,
    exchange: &str,
    headers: FieldTable,
    body: Vec<u8>,
) {
    let Ok(link) = shared.publishing_link() else {
        return;
    };

    // A link that breaks or is blocked drops the message without waiting.
    let send = send(shared, &link, channel, exchange, headers, body);
    let sent = tokio::select! {
        sent = timeout(shared.at_least(WRITE_TIMEOUT), send) => sent,
        _ = shared.unpublishable(&link) => return,
    };

    match sent {
        Ok(Ok(())) => {}
        Ok(Err(error)) => link.fail(reason_of(&error)),
        Err(_) => link.fail_unless_blocked("nothing can be written to it"),
    }
}

async fn send(
    shared: &Shared,
    link: &Link,
    open: &mut OpenChannel,
    exchange: &str,
    headers: FieldTable,
    body: Vec<u8>,
) -> lapin::Result<()> {
    // The channel is taken out, so that a send that fails or is cancelled drops it.
    let channel = match open.take_if(|(number, _)| *number == link.number) {
        Some((_, channel)) => channel,
        None => link.publishing.create_channel().await?,
    };

    let properties = BasicProperties::default()
        .with_app_id(short(&shared.origin))
        .with_headers(headers);
    channel
        .basic_publish(
            short(&shared.names.full(exchange)),
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

/// Receives the signals of other processes for as long as the link lives.
pub(super) async fn receive_signals(shared: &Arc<Shared>, link: &Arc<Link>) -> lapin::Result<()> {
    let exchange = names::CONTROL_EXCHANGE;
    let mut consumer = consume_broadcast(shared, link, exchange).await?;
    let shared = Arc::clone(shared);
    let link = Arc::clone(link);

    // It ends when the link fails or the broker is closed.
    tokio::spawn(async move {
        while let Some(delivery) = next_from_others(&shared, &link, exchange, &mut consumer).await {
            let Some(signals) = &*shared.signals.lock() else {
                return;
            };
            match serde_json::from_slice::<Signal>(&delivery.data) {
                Ok(signal) => drop(signals.send(signal)),
                Err(error) => {
                    tracing::debug!(%error, "broker: unreadable signal; ignoring it");
                }
            }
        }
    });

    Ok(())
}

/// Consumes a fanout exchange through a queue of this process. The queue goes with the link.
pub(super) async fn consume_broadcast(
    shared: &Shared,
    link: &Link,
    exchange: &str,
) -> lapin::Result<Consumer> {
    let channel = link.consuming.create_channel().await?;
    let name = format!("{exchange}.{}-{}", shared.origin, link.number);
    let queue = short(&shared.names.full(&name));

    let options = QueueDeclareOptions {
        exclusive: true,
        auto_delete: true,
        ..QueueDeclareOptions::default()
    };
    let arguments = table(&[("x-max-length", number(MAX_WAITING))]);
    channel
        .queue_declare(queue.clone(), options, arguments)
        .await?;

    channel
        .queue_bind(
            queue.clone(),
            short(&shared.names.full(exchange)),
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

/// The next message of another process; `None` when the link is broken.
pub(super) async fn next_from_others(
    shared: &Shared,
    link: &Link,
    exchange: &str,
    consumer: &mut Consumer,
) -> Option<Delivery> {
    loop {
        // The end of the link ends the wait.
        let delivery = tokio::select! {
            delivery = consumer.next() => delivery,
            _ = link.failed() => return None,
        };

        match delivery {
            Some(Ok(delivery)) => {
                shared
                    .traffic
                    .count(exchange, |traffic| traffic.delivered += 1);
                let origin = delivery.properties.app_id().as_ref();
                if origin.map(ShortString::as_str) != Some(&shared.origin) {
                    return Some(delivery);
                }
            }
            Some(Err(error)) => link.fail(reason_of(&error)),
            None => link.fail(format!("it ended the consumer at {exchange}")),
        }
    }
}

/// One listener. `None` when the broker was closed before it came.
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
