//! Tasks and related records, as rows and as the JSON parameters of statements.

use longhaul_domain::{
    AccessToken, Attempt, AttemptEndKind, ChildCounts, Json, KnownToken, LeaseToken, LogEntry,
    LogLevel, NodeId, NodeRecord, Phase, QueueName, RetryPolicy, Status, TaskError, TaskId,
    TaskRecord, Timestamp,
    access_token::TokenDigest,
    artifact::ArtifactRecord,
    bounds,
    contract::broker::Hint,
    event::{LeasedMessage, OutboxMessage, Topic},
    ids::ArtifactId,
    statistics::{CountKey, Measure, TaskCount},
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    row::{Columns, SqlRow},
    sql_error::SqlError,
    task_columns::position,
};

/// An id as a JSON parameter: 32 hexadecimal digits.
pub(crate) fn hex(id: Uuid) -> String {
    id.simple().to_string()
}

/// A list of ids as a JSON parameter.
pub(crate) fn hex_list(ids: impl IntoIterator<Item = TaskId>) -> String {
    let mut text = String::from("[");
    for id in ids {
        if text.len() > 1 {
            text.push(',');
        }
        text.push('"');
        text.push_str(&hex(id.0));
        text.push('"');
    }

    text.push(']');
    text
}

fn number<T: TryFrom<i64>>(row: &impl Columns, column: usize) -> Result<T, SqlError> {
    let value = row.must_int(column)?;
    T::try_from(value)
        .map_err(|_| SqlError::internal(format!("column {column} is {value}, out of range")))
}

/// The largest count that is read. Every database can store it and count further.
const MOST: u32 = 1_000_000_000;
const MOST_VERSION: u64 = 1_000_000_000_000_000;

/// A number in a task's row, which other programs may write. `None` if it is not a number.
fn any_int(row: &impl Columns, column: usize) -> Option<i64> {
    row.int(column).ok().flatten()
}

/// A text in a task's row. `None` if it is not a text.
fn any_str(row: &impl Columns, column: usize) -> Option<&str> {
    row.str(column).ok().flatten()
}

fn any_text(row: &impl Columns, column: usize) -> Option<String> {
    any_str(row, column).map(str::to_owned)
}

/// The name of a queue in a row. People write rows with any text.
#[expect(clippy::disallowed_methods, reason = "the text comes from the store")]
pub(crate) fn queue_name(text: &str) -> QueueName {
    QueueName::stored(text)
}

fn any_time(row: &impl Columns, column: usize) -> Option<Timestamp> {
    any_int(row, column).map(Timestamp::from_micros)
}

pub(crate) fn any_id(row: &impl Columns, column: usize) -> Option<Uuid> {
    row.id(column).ok().flatten()
}

fn any_json(row: &impl Columns, column: usize) -> Option<Json> {
    any_str(row, column).map(Json::trusted)
}

/// A count, limited to the valid range.
fn count(row: &impl Columns, column: usize) -> u32 {
    u32::try_from(any_int(row, column).unwrap_or(0).max(0)).map_or(MOST, |number| number.min(MOST))
}

/// The number of an attempt; 0 if invalid. Claims and the guards of saves do the same.
pub(crate) fn attempt_number(row: &impl Columns, column: usize) -> u32 {
    let number = any_int(row, column).and_then(|number| u32::try_from(number).ok());
    number.filter(|number| *number <= MOST).unwrap_or(0)
}

/// The version of a task; 0 if invalid.
fn version(row: &impl Columns, column: usize) -> u64 {
    let number = any_int(row, column).and_then(|number| u64::try_from(number).ok());
    number.filter(|number| *number <= MOST_VERSION).unwrap_or(0)
}

fn priority(row: &impl Columns, column: usize) -> u8 {
    let least = *bounds::PRIORITY.start();
    let most = *bounds::PRIORITY.end();
    let asked = any_int(row, column).unwrap_or(0).max(0);
    u8::try_from(asked).map_or(most, |priority| priority.clamp(least, most))
}

fn time(row: &impl Columns, column: usize) -> Result<Option<Timestamp>, SqlError> {
    Ok(row.int(column)?.map(Timestamp::from_micros))
}

fn must_time(row: &impl Columns, column: usize) -> Result<Timestamp, SqlError> {
    Ok(Timestamp::from_micros(row.must_int(column)?))
}

pub(crate) fn status(row: &impl Columns, column: usize) -> Result<Status, SqlError> {
    let text = row.must_str(column)?;
    Status::parse(text).ok_or_else(|| SqlError::internal(format!("unknown status {text:?}")))
}

/// The least that an error must have.
#[derive(Deserialize)]
struct ErrorByHand {
    class: String,
    message: String,
}

/// An error of an attempt. Missing fields are filled in. Other text becomes the message.
fn error(row: &impl Columns, column: usize, attempt: u32, at: Timestamp) -> Option<TaskError> {
    let text = any_str(row, column)?;
    let by_hand = |_| match serde_json::from_str(text) {
        Ok(ErrorByHand { class, message }) => TaskError::new(&class, &message, None, at, attempt),
        Err(_) => TaskError::new("unknown", text, None, at, attempt),
    };
    Some(serde_json::from_str(text).unwrap_or_else(by_hand))
}

/// The retry policy, without unknown fields. An invalid policy becomes the default.
fn policy(row: &impl Columns, column: usize, id: TaskId) -> RetryPolicy {
    let Some(text) = any_str(row, column) else {
        return RetryPolicy::default();
    };
    let read = serde_json::from_str(text)
        .ok()
        .or_else(|| known_policy(text))
        .filter(|policy| policy.check().is_ok());

    read.unwrap_or_else(|| {
        tracing::debug!(
            task_id = %id,
            text,
            "the retry policy of a task cannot be read; the default one is used"
        );
        RetryPolicy::default()
    })
}

fn known_policy(text: &str) -> Option<RetryPolicy> {
    let mut fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text).ok()?;
    fields.retain(|name, _| ["initialMs", "factor", "jitter", "maxMs"].contains(&name.as_str()));
    serde_json::from_value(fields.into()).ok()
}

/// Reads a task from `TASK_COLUMNS`.
///
/// People and other program versions write such rows. Invalid values are replaced as described in
/// `docs/sql.md`: a row that cannot be read would fail every claim of its lane.
pub(crate) fn task(row: &impl Columns) -> Result<TaskRecord, SqlError> {
    let id = TaskId(row.must_id(const { position("id") })?);
    let attempt = attempt_number(row, const { position("attempt") });
    let last_attempt_at = any_time(row, const { position("last_attempt_at") });
    let updated_at = any_time(row, const { position("updated_at") }).unwrap_or_default();

    Ok(TaskRecord {
        id,
        parent_id: any_id(row, const { position("parent_id") }).map(TaskId),
        owner: any_text(row, const { position("owner") }).unwrap_or_default(),
        tier: any_text(row, const { position("tier") }),
        task_type: any_text(row, const { position("task_type") }).unwrap_or_default(),
        task_key: any_text(row, const { position("task_key") }),
        queue: queue_name(any_str(row, const { position("queue") }).unwrap_or_default()),
        priority: priority(row, const { position("priority") }),
        status: status(row, const { position("status") })?,
        phase: if any_str(row, const { position("phase") }) == Some(Phase::Finish.as_str()) {
            Phase::Finish
        } else {
            Phase::Run
        },
        attempt,
        max_attempts: count(row, const { position("max_attempts") }),
        retry_count: count(row, const { position("retry_count") }),
        snooze_count: count(row, const { position("snooze_count") }),
        crash_count: count(row, const { position("crash_count") }),
        version: version(row, const { position("version") }),
        created_at: any_time(row, const { position("created_at") }).unwrap_or_default(),
        updated_at,
        due_at: any_time(row, const { position("due_at") }).unwrap_or_default(),
        started_at: any_time(row, const { position("started_at") }),
        last_attempt_at,
        finished_at: any_time(row, const { position("finished_at") }),
        deadline_at: any_time(row, const { position("deadline_at") }),
        timeout_ms: any_int(row, const { position("timeout_ms") })
            .and_then(|ms| u64::try_from(ms).ok()),
        lease_token: any_id(row, const { position("lease_token") }).map(LeaseToken),
        node_id: any_id(row, const { position("node_id") }).map(NodeId),
        host: any_text(row, const { position("host") }),
        children: ChildCounts {
            total: count(row, const { position("children_total") }).min(bounds::CHILDREN),
            completed: count(row, const { position("children_completed") }),
            with_errors: count(row, const { position("children_with_errors") }),
            failed: count(row, const { position("children_failed") }),
            cancelled: count(row, const { position("children_cancelled") }),
        },
        finish_step: row.flag(const { position("finish_step") }).unwrap_or(false),
        retry: policy(row, const { position("retry_policy") }, id),
        parameters: any_json(row, const { position("parameters") })
            .unwrap_or_else(|| Json::trusted("")),
        checkpoint: any_json(row, const { position("checkpoint") }),
        progress: any_json(row, const { position("progress") }),
        result: any_json(row, const { position("result") }),
        result_url: any_text(row, const { position("result_url") }),
        error: error(
            row,
            const { position("error") },
            attempt,
            last_attempt_at.unwrap_or(updated_at),
        ),
        memo: any_json(row, const { position("memo") }),
        correlation_id: any_text(row, const { position("correlation_id") }),
        trace_context: any_text(row, const { position("trace_context") }),
        artifact_expires_at: any_time(row, const { position("artifact_expires_at") }),
        artifact_state: any_text(row, const { position("artifact_state") }),
    })
}

/// Reads the hint of a task from the columns of `read_hints`.
pub(crate) fn hint(row: &impl Columns) -> Result<Hint, SqlError> {
    Ok(Hint {
        task_id: TaskId(row.must_id(0)?),
        owner: any_text(row, 1).unwrap_or_default(),
        task_type: any_text(row, 2).unwrap_or_default(),
        queue: queue_name(any_str(row, 3).unwrap_or_default()),
        priority: priority(row, 4),

        retry_count: count(row, 5),
        submitted_at: any_time(row, 6).unwrap_or_default(),
        due_at: any_time(row, 7).unwrap_or_default(),
        lookups: 0,
        correlation_id: any_text(row, 8),
        trace_context: any_text(row, 9),
    })
}

/// A change as a parameter of `save_tasks`: the guard, then the columns that decisions change.
#[derive(Serialize)]
pub(crate) struct TaskChange<'a> {
    id: String,
    old_version: u64,
    old_status: &'static str,
    old_attempt: u32,
    queue: &'a str,
    priority: u8,
    status: &'static str,
    phase: &'static str,
    lane: Option<i64>,
    max_attempts: u32,
    retry_count: u32,
    snooze_count: u32,
    crash_count: u32,
    version: u64,
    updated_at: Timestamp,
    due_at: Timestamp,
    finished_at: Option<Timestamp>,
    deadline_at: Option<Timestamp>,
    expires_at: Option<Timestamp>,
    lease_token: Option<String>,
    children_total: u32,
    children_completed: u32,
    children_with_errors: u32,
    children_failed: u32,
    children_cancelled: u32,
    progress: Option<&'a str>,
    result: Option<&'a str>,
    result_url: Option<&'a str>,
    error: Option<String>,
}

impl<'a> TaskChange<'a> {
    pub(crate) fn new(
        before: &TaskRecord,
        after: &'a TaskRecord,
        lane: Option<i64>,
    ) -> Result<Self, SqlError> {
        Ok(Self {
            id: hex(before.id.0),
            old_version: before.version,
            old_status: before.status.as_str(),
            old_attempt: before.attempt,
            queue: &after.queue,
            priority: after.priority,
            status: after.status.as_str(),
            phase: after.phase.as_str(),
            lane,
            max_attempts: after.max_attempts,
            retry_count: after.retry_count,
            snooze_count: after.snooze_count,
            crash_count: after.crash_count,
            version: after.version,
            updated_at: after.updated_at,
            due_at: after.due_at,
            finished_at: after.finished_at,
            deadline_at: after.deadline_at,
            expires_at: match after.status.is_ended() {
                true => None,
                false => after.deadline_at,
            },
            lease_token: after.lease_token.map(|token| hex(token.0)),
            children_total: after.children.total,
            children_completed: after.children.completed,
            children_with_errors: after.children.with_errors,
            children_failed: after.children.failed,
            children_cancelled: after.children.cancelled,
            progress: after.progress.as_ref().map(Json::as_str),
            result: after.result.as_ref().map(Json::as_str),
            result_url: after.result_url.as_deref(),
            error: error_text(after.error.as_ref())?,
        })
    }
}

impl TaskChange<'_> {
    /// About its size in a statement.
    pub(crate) fn bytes(&self) -> usize {
        let texts = [
            self.progress,
            self.result,
            self.result_url,
            self.error.as_deref(),
        ];
        1_000 + texts.iter().flatten().map(|text| text.len()).sum::<usize>()
    }
}

fn error_text(error: Option<&TaskError>) -> Result<Option<String>, SqlError> {
    Ok(error.map(serde_json::to_string).transpose()?)
}

/// An attempt as a parameter of `insert_attempts`.
#[derive(Serialize)]
pub(crate) struct AttemptRow {
    task_id: String,
    attempt: u32,
    outcome: &'static str,
    node_id: Option<String>,
    host: Option<String>,
    started_at: Option<Timestamp>,
    ended_at: Option<Timestamp>,
    error: Option<String>,
}

impl AttemptRow {
    pub(crate) fn new(attempt: Attempt) -> Result<Self, SqlError> {
        Ok(Self {
            task_id: hex(attempt.task_id.0),
            attempt: attempt.attempt,
            outcome: attempt.end.as_str(),
            node_id: attempt.node_id.map(|id| hex(id.0)),
            host: attempt.host,
            started_at: attempt.started_at,
            ended_at: attempt.ended_at,
            error: error_text(attempt.error.as_ref())?,
        })
    }
}

pub(crate) fn attempt(row: &SqlRow) -> Result<Attempt, SqlError> {
    let outcome = row.must_text(2)?;
    let attempt = number(row, 1)?;
    let started_at = time(row, 5)?;
    let ended_at = time(row, 6)?;

    Ok(Attempt {
        task_id: TaskId(row.must_id(0)?),
        attempt,
        end: AttemptEndKind::parse(&outcome)
            .ok_or_else(|| SqlError::internal(format!("unknown outcome {outcome:?}")))?,
        node_id: row.id(3)?.map(NodeId),
        host: row.text(4)?,
        started_at,
        ended_at,
        error: error(row, 7, attempt, ended_at.or(started_at).unwrap_or_default()),
    })
}

/// A message as a parameter of `insert_outbox`.
#[derive(Serialize)]
pub(crate) struct OutboxRow {
    topic: &'static str,
    task_id: String,
    body: String,
}

impl OutboxRow {
    pub(crate) fn new(message: &OutboxMessage) -> Result<Self, SqlError> {
        let body = serde_json::to_string(&message.body)?;
        Ok(Self {
            topic: message.topic.as_str(),
            task_id: hex(message.task_id.0),
            body,
        })
    }
}

pub(crate) fn message(row: &SqlRow) -> Result<LeasedMessage, SqlError> {
    let topic = row.must_text(1)?;
    Ok(LeasedMessage {
        id: row.must_int(0)?,
        tries: number::<u32>(row, 4)? + 1,
        message: OutboxMessage {
            topic: Topic::parse(&topic)
                .ok_or_else(|| SqlError::internal(format!("unknown topic {topic:?}")))?,
            task_id: TaskId(row.must_id(2)?),
            body: serde_json::from_str(&row.must_text(3)?)?,
        },
    })
}

pub(crate) fn log_entry(row: &SqlRow) -> Result<LogEntry, SqlError> {
    let level = row.must_text(2)?;
    Ok(LogEntry {
        number: number(row, 0)?,
        attempt: number(row, 1)?,
        level: LogLevel::parse(&level)
            .ok_or_else(|| SqlError::internal(format!("unknown level {level:?}")))?,
        message: row.must_text(3)?,
        logged_at: must_time(row, 4)?,
    })
}

/// Reads the first eleven columns of a statement about artifacts.
pub(crate) fn artifact(row: &SqlRow) -> Result<ArtifactRecord, SqlError> {
    Ok(ArtifactRecord {
        id: ArtifactId(row.must_id(0)?),
        task_id: TaskId(row.must_id(1)?),
        attempt: number(row, 2)?,
        key: row.must_text(3)?,
        file_name: row.must_text(4)?,
        content_type: row.must_text(5)?,
        bytes: number(row, 6)?,

        created_at: must_time(row, 7)?,
        expires_at: must_time(row, 8)?,
        cleaned_at: time(row, 9)?,
        failures: number(row, 10)?,
    })
}

/// Reads a task count whose columns start at `first`.
pub(crate) fn task_count(row: &SqlRow, first: usize) -> Result<TaskCount, SqlError> {
    let measure = row.must_text(first + 3)?;

    Ok(TaskCount {
        key: CountKey {
            span_start: row.must_int(first)?,
            queue: row.must_text(first + 1)?,
            task_type: row.must_text(first + 2)?,
            measure: Measure::parse(&measure)
                .ok_or_else(|| SqlError::internal(format!("unknown measure {measure:?}")))?,
            label: row.must_text(first + 4)?,
            bucket: number(row, first + 5)?,
        },
        n: row.must_int(first + 6)?,
    })
}

pub(crate) fn node(row: &SqlRow) -> Result<NodeRecord, SqlError> {
    Ok(NodeRecord {
        id: NodeId(row.must_id(0)?),
        name: row.must_text(1)?,
        host: row.must_text(2)?,
        started_at: must_time(row, 3)?,
        heartbeat_at: must_time(row, 4)?,
        lost_at: time(row, 5)?,
        // Another version may have written a text that this one cannot read.
        serves: row
            .text(6)?
            .and_then(|text| serde_json::from_str(&text).ok()),
    })
}

/// Reads a token from the columns that all token statements share.
pub(crate) fn access_token(row: &SqlRow) -> Result<AccessToken, SqlError> {
    Ok(AccessToken {
        id: row.must_text(0)?,
        prefix: row.must_text(1)?,
        owner: row.must_text(2)?,
        tier: row.text(3)?,
        scopes: row.must_text(4)?.split(' ').map(str::to_owned).collect(),
        name: row.must_text(5)?,
        created_at: must_time(row, 6)?,
        expires_at: must_time(row, 7)?,
        last_used_at: time(row, 8)?,
        revoked_at: time(row, 9)?,
    })
}

pub(crate) fn known_token(row: &SqlRow) -> Result<KnownToken, SqlError> {
    let text = row.must_text(10)?;
    let digest = text_digest(&text)
        .ok_or_else(|| SqlError::internal("a token's digest is not 64 digits"))?;
    Ok(KnownToken {
        token: access_token(row)?,
        digest,
        seen_at: must_time(row, 11)?,
    })
}

/// A digest as stored: 64 hexadecimal digits.
pub(crate) fn digest_text(digest: TokenDigest) -> String {
    hex::encode(digest.0)
}

fn text_digest(text: &str) -> Option<TokenDigest> {
    let mut bytes = [0; 32];
    hex::decode_to_slice(text, &mut bytes).ok()?;
    Some(TokenDigest(bytes))
}
