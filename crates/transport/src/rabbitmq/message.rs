//! What a bell and a report of progress look like on the way: a small JSON body, and properties and headers that people
//! and other programs can sort by.

use lapin::{
    BasicProperties,
    types::{AMQPValue, FieldArray, FieldTable},
};
use longhaul_domain::{
    Json, Lease, LeaseToken, TaskId,
    bounds::{AHEAD_LOOKS, JSON_BYTES},
    contract::broker::{Bell, ProgressReport},
    time::Timestamp,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{
    publisher::Outgoing,
    topology::{Names, routing_key, rung_key, rung_ms, short},
};
use crate::{names, random};

/// A bell of ours has some hundred bytes; whatever is larger than this is none.
const BELL_BYTES: usize = 16 * 1024;
/// The longest progress, and room for what stands around it.
const REPORT_BYTES: usize = JSON_BYTES + 4 * 1024;

const PERSISTENT: u8 = 2;
const TRANSIENT: u8 = 1;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BellBody {
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "so serde asks")]
const fn is_zero(looks: &u8) -> bool {
    *looks == 0
}

/// The message of a bell that rings now, or after a delay that is worth a rung of the ladder.
pub(super) fn of_bell(names: &Names, bell: &Bell, delay_ms: u64) -> Outgoing {
    let body = BellBody {
        task_id: bell.task_id,
        user_id: bell.owner.clone(),
        task_type: bell.task_type.clone(),
        queue: bell.queue.clone(),
        priority: bell.priority,
        retry_count: bell.retry_count,
        submitted_at: moment(bell.submitted_at),
        due_at: moment(bell.due_at),
        looks: bell.looks,
        correlation_id: bell.correlation_id.clone(),
        traceparent: bell.trace_context.clone(),
    };
    let key = routing_key(&bell.queue, &bell.task_type);
    let mut headers = headers(
        bell.task_id,
        &bell.owner,
        &bell.task_type,
        bell.trace_context.as_deref(),
    );
    headers.insert("submittedAt".into(), text(&body.submitted_at.to_string()));
    headers.insert(
        "x-retry-count".into(),
        AMQPValue::LongLongInt(bell.retry_count.into()),
    );
    let (exchange, key) = match rung_ms(delay_ms) {
        None => (names::EXCHANGE, key),
        Some(rung_ms) => {
            // The second key finds the lane when the rung lets the bell go; here it finds nothing.
            headers.insert(
                "CC".into(),
                AMQPValue::FieldArray(FieldArray::from(vec![text(&key)])),
            );
            (names::RETRY_EXCHANGE, rung_key(rung_ms))
        }
    };
    let properties = properties("application/json", bell.correlation_id.as_deref(), headers)
        .with_priority(bell.priority.min(9))
        .with_timestamp(seconds(bell.due_at.max(bell.submitted_at)))
        .with_delivery_mode(PERSISTENT);
    Outgoing {
        exchange: names.full(exchange),
        key,
        is_mandatory: true,
        id: random::uuid().to_string(),
        properties,
        body: json(&body),
        counted: names::lane(&bell.queue),
    }
}

pub(super) fn to_bell(body: &[u8]) -> Result<Bell, String> {
    check_size(body, BELL_BYTES)?;
    let body: BellBody = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    Ok(Bell {
        task_id: body.task_id,
        owner: body.user_id,
        task_type: body.task_type,
        queue: body.queue,
        priority: body.priority,
        retry_count: body.retry_count,
        submitted_at: Timestamp::from_micros(body.submitted_at.as_microsecond()),
        due_at: Timestamp::from_micros(body.due_at.as_microsecond()),
        looks: body.looks.min(AHEAD_LOOKS),
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
    Ok(ProgressReport {
        lease: Lease {
            task_id: body.task_id,
            attempt: body.attempt,
            token: body.lease_token,
        },
        sequence: body.sequence,
        progress: Json::parse("progress", body.progress.get())
            .map_err(|error| error.to_string())?,
        is_full: body.is_full,
    })
}

/// A message that could not be read, as it goes to the dead letters.
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

/// The headers that every message about a task has.
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

/// Every moment that a store can keep is one that this can write.
pub(super) fn moment(at: Timestamp) -> jiff::Timestamp {
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
