//! The format of hints and reports of progress: a small JSON body, with properties and headers by
//! which operators and other programs can sort.

use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldArray, FieldTable},
};
use longhaul_domain::{
    Json, Lease, LeaseToken, QueueName, TaskId,
    bounds::{AHEAD_LOOKUPS, JSON_BYTES},
    contract::broker::{Hint, ProgressReport},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    publisher::Outgoing,
    topology::{Names, delay_key, delay_step_ms, routing_key, short},
};
use crate::{names, random};

/// The most bytes of a hint. Longhaul publishes hints of some hundred bytes.
const HINT_BYTES: usize = 16 * 1024;
/// The longest progress, with room for the fields around it.
const REPORT_BYTES: usize = JSON_BYTES + 4 * 1024;

/// The delivery modes of AMQP.
pub(super) const PERSISTENT: u8 = 2;
const TRANSIENT: u8 = 1;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HintBody {
    task_id: TaskId,
    user_id: String,
    task_type: String,
    queue: String,
    priority: u8,
    retry_count: u32,
    submitted_at: jiff::Timestamp,
    due_at: jiff::Timestamp,
    #[serde(default, skip_serializing_if = "is_zero")]
    looks: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    correlation_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReportBody<'a> {
    task_id: TaskId,
    attempt: u32,
    lease_token: LeaseToken,
    sequence: u64,
    #[serde(borrow)]
    progress: &'a RawValue,
    is_full: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde requires"
)]
const fn is_zero(looks: &u8) -> bool {
    *looks == 0
}

/// The message of a hint, for now or, if the delay is long enough for a step, for later.
pub(super) fn of_hint(names: &Names, hint: &Hint, delay_ms: u64) -> Outgoing {
    let body = hint_body(hint);
    let mut headers = headers(
        hint.task_id,
        &hint.owner,
        &hint.task_type,
        hint.trace_context.as_deref(),
    );
    headers.insert("submittedAt".into(), text(&body.submitted_at.to_string()));
    headers.insert(
        "x-retry-count".into(),
        AMQPValue::LongLongInt(hint.retry_count.into()),
    );

    let key = routing_key(&hint.queue, &hint.task_type);
    let (exchange, key) = match delay_step_ms(delay_ms) {
        None => (names::EXCHANGE, key),
        Some(step_ms) => {
            // The second key matches the hint queue after the delay. Before it, it matches nothing.
            let second_key = FieldArray::from(vec![text(&key)]);
            headers.insert("CC".into(), AMQPValue::FieldArray(second_key));
            (names::RETRY_EXCHANGE, delay_key(step_ms))
        }
    };

    let properties = properties("application/json", hint.correlation_id.as_deref(), headers)
        .with_priority(hint.priority.min(9))
        .with_timestamp(seconds(hint.due_at.max(hint.submitted_at)))
        .with_delivery_mode(PERSISTENT);

    Outgoing {
        exchange: names.full(exchange),
        key,
        is_mandatory: true,
        id: random::uuid().to_string(),
        properties,
        body: json(&body),
        counted: names::hint_queue(&hint.queue),
    }
}

fn hint_body(hint: &Hint) -> HintBody {
    HintBody {
        task_id: hint.task_id,
        user_id: hint.owner.clone(),
        task_type: hint.task_type.clone(),
        queue: hint.queue.to_string(),
        priority: hint.priority,
        retry_count: hint.retry_count,
        submitted_at: timestamp(hint.submitted_at),
        due_at: timestamp(hint.due_at),
        looks: hint.lookups,
        correlation_id: hint.correlation_id.clone(),
        traceparent: hint.trace_context.clone(),
    }
}

pub(super) fn to_hint(body: &[u8]) -> Result<Hint, String> {
    check_size(body, HINT_BYTES)?;
    let body: HintBody = serde_json::from_slice(body).map_err(|error| error.to_string())?;

    let queue = QueueName::parse(&body.queue).map_err(|invalid| invalid.to_string())?;

    Ok(Hint {
        task_id: body.task_id,
        owner: body.user_id,
        task_type: body.task_type,
        queue,
        priority: body.priority,
        retry_count: body.retry_count,
        submitted_at: Timestamp::from_micros(body.submitted_at.as_microsecond()),
        due_at: Timestamp::from_micros(body.due_at.as_microsecond()),
        lookups: body.looks.min(AHEAD_LOOKUPS),
        correlation_id: body.correlation_id,
        trace_context: body.traceparent,
    })
}

pub(super) fn of_report(names: &Names, report: &ProgressReport) -> Result<Outgoing, String> {
    let Lease {
        task_id,
        attempt,
        token,
    } = report.lease;
    let progress =
        serde_json::from_str(report.progress.as_str()).map_err(|error| error.to_string())?;

    let body = ReportBody {
        task_id,
        attempt,
        lease_token: token,
        sequence: report.sequence,
        progress,
        is_full: report.is_full,
    };

    let mut headers = FieldTable::default();
    headers.insert("taskId".into(), text(&task_id.to_string()));

    Ok(Outgoing {
        exchange: String::new(),
        key: names.full(names::PROGRESS_QUEUE),
        is_mandatory: true,
        id: format!("{task_id}-{attempt}-{}", report.sequence),
        properties: properties("application/json", None, headers).with_delivery_mode(TRANSIENT),
        body: json(&body),
        counted: names::PROGRESS_QUEUE.to_owned(),
    })
}

pub(super) fn to_report(body: &[u8]) -> Result<ProgressReport, String> {
    check_size(body, REPORT_BYTES)?;
    let body: ReportBody<'_> = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let progress = Json::parse("progress", body.progress.get());

    Ok(ProgressReport {
        lease: Lease {
            task_id: body.task_id,
            attempt: body.attempt,
            token: body.lease_token,
        },
        sequence: body.sequence,
        progress: progress.map_err(|error| error.to_string())?,
        is_full: body.is_full,
    })
}

/// The dead letter of a message that could not be read.
pub(super) fn of_unreadable(names: &Names, queue: &str, why: &str, body: Vec<u8>) -> Outgoing {
    let mut headers = FieldTable::default();
    headers.insert("x-unreadable".into(), text(why));
    headers.insert("x-from-queue".into(), text(queue));

    Outgoing {
        exchange: names.full(names::DEAD_LETTER_EXCHANGE),
        key: queue.to_owned(),
        is_mandatory: true,
        id: random::uuid().to_string(),
        properties: BasicProperties::default()
            .with_headers(headers)
            .with_delivery_mode(PERSISTENT),
        body,
        counted: names::DEAD_LETTER_QUEUE.to_owned(),
    }
}

/// The headers of every message about a task.
pub(super) fn headers(
    task_id: TaskId,
    owner: &str,
    task_type: &str,
    trace_context: Option<&str>,
) -> FieldTable {
    let mut headers = FieldTable::default();
    headers.insert("taskId".into(), text(&task_id.to_string()));
    headers.insert("userId".into(), text(owner));
    headers.insert("taskType".into(), text(task_type));
    if let Some(trace_context) = trace_context {
        headers.insert("traceparent".into(), text(trace_context));
    }

    headers
}

pub(super) fn properties(
    content_type: &str,
    correlation_id: Option<&str>,
    headers: FieldTable,
) -> BasicProperties {
    let properties = BasicProperties::default()
        .with_content_type(short(content_type))
        .with_headers(headers);
    match correlation_id {
        Some(id) => properties.with_correlation_id(short(id)),
        None => properties,
    }
}

pub(super) fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

pub(super) fn seconds(at: Timestamp) -> u64 {
    u64::try_from(at.as_micros() / 1_000_000).unwrap_or(0)
}

/// Every time that a store can hold can be written.
pub(super) fn timestamp(at: Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_microsecond(at.as_micros()).unwrap_or_default()
}

pub(super) fn json(body: &impl Serialize) -> Vec<u8> {
    // Strings and numbers can always be written.
    serde_json::to_vec(body).unwrap_or_default()
}

fn check_size(body: &[u8], most: usize) -> Result<(), String> {
    if body.len() > most {
        return Err(format!("it has {} bytes, more than {most}", body.len()));
    }
    Ok(())
}
