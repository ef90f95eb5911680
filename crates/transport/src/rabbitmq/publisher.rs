//! Publishes with confirms: one answer for each message, within seconds, whatever the server does.
//!
//! A batch has a channel for itself. The client library hands a returned message to whichever confirm comes next, so
//! returns are only believed by the id that they carry, once the whole batch is answered.

use std::{collections::HashMap, pin::Pin, time::Duration};

use futures::{future::maybe_done, poll};
use lapin::{BasicProperties, Channel, Confirmation, options::BasicPublishOptions};
use longhaul_domain::contract::broker::Published;
use tokio::time::timeout;

use super::{
    connection::Shared,
    link::Link,
    topology::{said, short},
};

/// Messages that are under way on one channel without a confirm. More would only wait in the server's buffers.
const WINDOW: usize = 1_000;
/// A message that is not confirmed by then is unknown (reliability, row 12).
const CONFIRM_TIME: Duration = Duration::from_secs(5);

/// A message on its way out.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) exchange: String,
    pub(super) key: String,
    /// Whether some queue must take it.
    pub(super) is_mandatory: bool,
    pub(super) id: String,
    pub(super) properties: BasicProperties,
    pub(super) body: Vec<u8>,
    /// What it is counted under.
    pub(super) counted: String,
}

/// Publishes all messages and answers for each, in order.
pub(super) async fn publish(shared: &Shared, messages: &[Outgoing]) -> Vec<Published> {
    let mut answers = Vec::with_capacity(messages.len());
    for window in messages.chunks(WINDOW) {
        let answered = match shared.publishing_link() {
            Ok(link) => publish_window(shared, &link, window).await,
            Err(why) => vec![Published::Unknown(why); window.len()],
        };
        answers.extend(answered);
    }
    count(shared, messages, &answers);
    answers
}

async fn publish_window(shared: &Shared, link: &Link, window: &[Outgoing]) -> Vec<Published> {
    let mut confirms = Vec::new();
    let confirm_time = shared.patient(CONFIRM_TIME);
    let sent = tokio::select! {
        sent = timeout(confirm_time, send(link, window, &mut confirms)) => sent,
        why = shared.unpublishable(link) => Ok(Err(why)),
    };
    let why = match sent {
        Ok(Ok(channel)) => {
            link.give_back(channel);
            String::new()
        }
        Ok(Err(why)) => {
            link.fail_unless_blocked(&why);
            why
        }
        Err(_) => {
            let why = format!("it has not confirmed within {} s", confirm_time.as_secs());
            link.fail_unless_blocked(&why);
            why
        }
    };
    answers(window, confirms, &why)
}

/// Sends all messages, then collects a confirm for each. What has been collected stays when this is given up.
async fn send(
    link: &Link,
    window: &[Outgoing],
    confirms: &mut Vec<Confirmation>,
) -> Result<Channel, String> {
    let (_permit, channel) = link
        .publishing_channel()
        .await
        .map_err(|error| said(&error))?;
    let mut sending: Vec<Pin<Box<_>>> = Vec::with_capacity(window.len());
    for message in window {
        let mut send = Box::pin(maybe_done(publish_one(&channel, message)));
        // The first poll queues the message: so they are queued in order, and nobody waits for each to be written.
        let _ = poll!(&mut send);
        sending.push(send);
    }
    for mut send in sending {
        send.as_mut().await;
        let Some(confirm) = send.as_mut().take_output() else {
            continue;
        };
        confirms.push(confirm.map_err(|error| said(&error))?);
    }
    Ok(channel)
}

async fn publish_one(channel: &Channel, message: &Outgoing) -> lapin::Result<Confirmation> {
    let options = BasicPublishOptions {
        mandatory: message.is_mandatory,
        ..BasicPublishOptions::default()
    };
    let properties = message
        .properties
        .clone()
        .with_message_id(short(&message.id));
    channel
        .basic_publish(
            short(&message.exchange),
            short(&message.key),
            options,
            &message.body,
            properties,
        )
        .await?
        .await
}

fn answers(window: &[Outgoing], confirms: Vec<Confirmation>, why: &str) -> Vec<Published> {
    let mut returned = HashMap::new();
    let mut is_taken = Vec::with_capacity(window.len());
    for confirm in confirms {
        is_taken.push(!confirm.is_nack());
        if let Some(message) = confirm.take_message()
            && let Some(id) = message.properties.message_id()
        {
            returned.insert(id.to_string(), message.reply_text.to_string());
        }
    }
    // Without the end of the batch a return may be with a confirm that never came.
    let is_whole = is_taken.len() == window.len();
    let answer = |(place, message): (usize, &Outgoing)| match (
        is_taken.get(place),
        returned.get(short(&message.id).as_str()),
    ) {
        (_, Some(text)) => {
            Published::Refused(format!("no queue takes it ({text}): {}", message.counted))
        }
        (Some(false), None) => {
            Published::Refused(format!("the broker refused it: {}", message.counted))
        }
        (Some(true), None) if is_whole || !message.is_mandatory => Published::Confirmed,
        (Some(true) | None, None) => Published::Unknown(why.to_owned()),
    };
    window.iter().enumerate().map(answer).collect()
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
