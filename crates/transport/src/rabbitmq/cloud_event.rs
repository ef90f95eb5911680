//! Messages for other systems: external events as CloudEvents 1.0, and dead letters.
//! `docs/events.md` has the format.

use longhaul_domain::{
    Status, TaskId,
    event::{EventKind, MessageBody, OutboxMessage, Topic},
    time::Timestamp,
};
use serde::Serialize;

use super::{
    message::{PERSISTENT, headers, json, properties, seconds, timestamp},
    publisher::Outgoing,
    topology::{Names, routing_key},
};
use crate::names;

const CONTENT_TYPE: &str = "application/cloudevents+json; charset=UTF-8";

#[derive(Serialize)]
struct CloudEvent<'a> {
    specversion: &'a str,
    id: &'a str,
    source: &'a str,
    #[serde(rename = "type")]
    kind: String,
    subject: TaskId,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<jiff::Timestamp>,
    datacontenttype: &'a str,
    /// The extension for distributed tracing.
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    data: Data<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Data<'a> {
    task_id: TaskId,
    user_id: &'a str,
    task_type: &'a str,
    queue: &'a str,
    priority: u8,
    event: EventKind,
    status: Status,
    attempt: u32,
    retry_count: u32,
    version: u64,
    correlation_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<EventError<'a>>,
}

#[derive(Serialize)]
struct EventError<'a> {
    class: Option<&'a str>,
    message: &'a str,
}

/// The message of an outbox row. An event may have no receiver; a dead letter must reach its queue.
pub(super) fn of_outbox(names: &Names, source: &str, message: &OutboxMessage) -> Outgoing {
    let MessageBody {
        event,
        user_id,
        task_type,
        correlation_id,
        trace_context,
        ..
    } = &message.body;

    let id = message.event_id();
    let occurred_at = Timestamp::from_micros(message.body.occurred_at);
    let cloud_event = CloudEvent {
        specversion: "1.0",
        id: &id,
        source,
        kind: format!("dev.longhaul.task.{}", event.as_str()),
        subject: message.task_id,
        time: (message.body.occurred_at > 0).then(|| timestamp(occurred_at)),
        datacontenttype: "application/json",
        traceparent: trace_context.as_deref(),
        data: data(message),
    };

    let headers = headers(
        message.task_id,
        user_id,
        task_type,
        trace_context.as_deref(),
    );
    let properties = properties(CONTENT_TYPE, correlation_id.as_deref(), headers)
        .with_timestamp(seconds(occurred_at))
        .with_delivery_mode(PERSISTENT);

    let (exchange, key) = destination(message);
    let (is_mandatory, counted) = match message.topic {
        Topic::Event => (false, names::EVENTS_EXCHANGE),
        Topic::DeadLetter => (true, names::DEAD_LETTER_QUEUE),
    };

    Outgoing {
        exchange: names.full(exchange),
        key,
        is_mandatory,
        properties,
        body: json(&cloud_event),
        counted: counted.to_owned(),
        id,
    }
}

/// The exchange and the routing key of a message.
fn destination(message: &OutboxMessage) -> (&'static str, String) {
    let MessageBody {
        event,
        task_type,
        queue,
        ..
    } = &message.body;

    match message.topic {
        Topic::Event => (
            names::EVENTS_EXCHANGE,
            format!("task.{}.{task_type}", event.as_str()),
        ),
        Topic::DeadLetter => (names::DEAD_LETTER_EXCHANGE, routing_key(queue, task_type)),
    }
}

fn data(message: &OutboxMessage) -> Data<'_> {
    let body = &message.body;
    let error = body.error.as_deref().map(|message| EventError {
        class: body.error_class.as_deref(),
        message,
    });

    Data {
        task_id: message.task_id,
        user_id: &body.user_id,
        task_type: &body.task_type,
        queue: &body.queue,
        priority: body.priority,
        event: body.event,
        status: body.status,
        attempt: body.attempt,
        retry_count: body.retry_count,
        version: body.version,
        correlation_id: body.correlation_id.as_deref(),
        error,
    }
}
