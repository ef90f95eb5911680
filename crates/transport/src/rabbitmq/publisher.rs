//! Publishes with confirms: one answer for each message, within seconds, whatever the server does.
//!
//! Each batch has a channel of its own. The client library attaches a returned message to the next
//! confirm of the channel, whichever that is. So a return is matched by the id that it carries, and
//! only once the whole batch is answered.

use std::{collections::HashMap, pin::Pin, time::Duration};

use futures::{future::maybe_done, poll};
use lapin::{BasicProperties, Channel, Confirmation, options::BasicPublishOptions};
use longhaul_domain::contract::broker::Published;
use tokio::time::timeout;

use super::{
    connection::Shared,
    link::Link,
    topology::{reason_of, short},
};

/// The most unconfirmed messages on one channel. More would only wait in the server's buffers.
const BATCH: usize = 1_000;
/// A message that is not confirmed within this time is [`Published::Unknown`].
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(5);

/// A message to publish.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) exchange: String,
    pub(super) key: String,
    /// Whether the server refuses the message when no queue takes it.
    pub(super) is_mandatory: bool,
    pub(super) id: String,
    pub(super) properties: BasicProperties,
    pub(super) body: Vec<u8>,
    /// The name that it is counted under.
    pub(super) counted: String,
}

/// Publishes all messages. Returns an answer for each, in order.
pub(super) async fn publish(shared: &Shared, messages: &[Outgoing]) -> Vec<Published> {
    let mut answers = Vec::with_capacity(messages.len());
    for batch in messages.chunks(BATCH) {
        let answered = match shared.publishing_link() {
            Ok(link) => publish_batch(shared, &link, batch).await,
            Err(why) => vec![Published::Unknown(why); batch.len()],
        };
        answers.extend(answered);
    }

    count(shared, messages, &answers);
    answers
}

async fn publish_batch(shared: &Shared, link: &Link, batch: &[Outgoing]) -> Vec<Published> {
    let mut confirms = Vec::new();
    let confirm_timeout = shared.at_least(CONFIRM_TIMEOUT);

    // `confirms` outlives a send that is cancelled, so messages that were confirmed stay confirmed.
    let sent = tokio::select! {
        sent = timeout(confirm_timeout, send(link, batch, &mut confirms)) => sent,
        why = shared.unpublishable(link) => Ok(Err(why)),
    };

    let why = match sent {
        Ok(Ok(channel)) => {
            link.return_channel(channel);
            String::new()
        }
        Ok(Err(why)) => {
            link.fail_unless_blocked(&why);
            why
        }
        Err(_) => {
            let seconds = confirm_timeout.as_secs();
            let why = format!("it has not confirmed within {seconds} s");
            link.fail_unless_blocked(&why);
            why
        }
    };

    answers(batch, confirms, &why)
}

/// Sends all messages, then collects a confirm for each.
async fn send(
    link: &Link,
    batch: &[Outgoing],
    confirms: &mut Vec<Confirmation>,
) -> Result<Channel, String> {
    let channel = link.publishing_channel().await;
    let (_permit, channel) = channel.map_err(|error| reason_of(&error))?;

    let mut sending: Vec<Pin<Box<_>>> = Vec::with_capacity(batch.len());
    for message in batch {
        let mut send = Box::pin(maybe_done(publish_one(&channel, message)));
        // The first poll queues the message. So the messages are queued in order, without waiting
        // until each is written.
        let _ = poll!(&mut send);
        sending.push(send);
    }

    for mut send in sending {
        send.as_mut().await;
        if let Some(confirm) = send.as_mut().take_output() {
            confirms.push(confirm.map_err(|error| reason_of(&error))?);
        }
    }

    Ok(channel)
}

async fn publish_one(channel: &Channel, message: &Outgoing) -> lapin::Result<Confirmation> {
    let options = BasicPublishOptions {
        mandatory: message.is_mandatory,
        ..BasicPublishOptions::default()
    };
    let properties = message.properties.clone();
    let properties = properties.with_message_id(short(&message.id));

    let published = channel.basic_publish(
        short(&message.exchange),
        short(&message.key),
        options,
        &message.body,
        properties,
    );
    published.await?.await
}

fn answers(batch: &[Outgoing], confirms: Vec<Confirmation>, why: &str) -> Vec<Published> {
    let mut returned = HashMap::new();
    let mut acks = Vec::with_capacity(batch.len());
    for confirm in confirms {
        acks.push(!confirm.is_nack());
        if let Some(message) = confirm.take_message()
            && let Some(id) = message.properties.message_id()
        {
            returned.insert(id.to_string(), message.reply_text.to_string());
        }
    }

    // A return may be attached to a confirm that is still missing.
    let is_complete = acks.len() == batch.len();
    let answer = |(index, message): (usize, &Outgoing)| {
        let name = &message.counted;
        let return_text = returned.get(short(&message.id).as_str());
        match (acks.get(index), return_text) {
            (_, Some(text)) => Published::Refused(format!("no queue takes it ({text}): {name}")),
            (Some(false), None) => Published::Refused(format!("the broker refused it: {name}")),
            (Some(true), None) if is_complete || !message.is_mandatory => Published::Confirmed,
            (Some(true) | None, None) => Published::Unknown(why.to_owned()),
        }
    };

    batch.iter().enumerate().map(answer).collect()
}

fn count(shared: &Shared, messages: &[Outgoing], answers: &[Published]) {
    for (message, answer) in messages.iter().zip(answers) {
        shared
            .traffic
            .count(&message.counted, |traffic| match answer {
                Published::Confirmed => traffic.published += 1,
                Published::Refused(why) if why.starts_with("no queue") => traffic.returned += 1,
                Published::Refused(_) => traffic.nacked += 1,
                Published::Unknown(_) => {}
            });
    }
}
