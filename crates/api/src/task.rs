//! Tasks, their attempts and their log lines.

use longhaul_domain::{
    Attempt, ChildCounts, Json, LogEntry, LogLevel, RetryPolicy, Status, TaskError, TaskId,
    TaskRecord, attempt::AttemptEndKind, task::Phase,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{document, duration::WireDuration, time::Moment};

/// The whole record of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TaskRecord)]
pub struct TaskView {
    #[serde(flatten)]
    pub summary: TaskSummary,
    #[serde(deserialize_with = "document::read")]
    #[schema(value_type = serde_json::Value)]
    pub parameters: Json,
    #[serde(deserialize_with = "document::read_optional", default)]
    #[schema(value_type = Option<serde_json::Value>)]
    pub checkpoint: Option<Json>,
    #[serde(deserialize_with = "document::read_optional", default)]
    #[schema(value_type = Option<serde_json::Value>)]
    pub result: Option<Json>,
    pub result_url: Option<String>,
    /// The error of the last attempt that failed.
    pub error: Option<ErrorView>,
    #[serde(deserialize_with = "document::read_optional", default)]
    #[schema(value_type = Option<serde_json::Value>)]
    pub memo: Option<Json>,
    /// `run`, or the step that computes a parent's result.
    #[schema(value_type = String)]
    pub phase: Phase,
    pub snooze_count: u32,
    pub crash_count: u32,
    #[schema(value_type = RetryPolicySchema)]
    pub retry_policy: RetryPolicy,
    pub last_attempt_at: Option<Moment>,
    pub timeout: Option<WireDuration>,
    pub deadline: Option<Moment>,
    /// The node of the last attempt.
    #[schema(value_type = Option<uuid::Uuid>)]
    pub node_id: Option<longhaul_domain::NodeId>,
    pub host: Option<String>,
    pub trace_context: Option<String>,
    pub artifact_expires_at: Option<Moment>,
    pub artifact_state: Option<String>,
}

/// A task as lists show it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskSummary {
    #[schema(value_type = uuid::Uuid)]
    pub task_id: TaskId,
    pub user_id: String,
    pub task_type: String,
    #[schema(value_type = StatusSchema)]
    pub status: Status,
    pub queue: String,
    pub tier: Option<String>,
    pub task_key: Option<String>,
    pub correlation_id: Option<String>,
    #[schema(value_type = Option<uuid::Uuid>)]
    pub parent_task_id: Option<TaskId>,
    pub priority: u8,
    pub attempt: u32,
    pub max_attempts: u32,
    pub retry_count: u32,
    /// The newest progress, live if the task runs in this process.
    #[serde(deserialize_with = "document::read_optional", default)]
    #[schema(value_type = Option<serde_json::Value>)]
    pub progress: Option<Json>,
    pub error_message: Option<String>,
    pub children: ChildrenView,
    pub created_at: Moment,
    pub updated_at: Moment,
    /// When the task is due.
    pub run_at: Moment,
    /// `runAt` while the task waits for an attempt.
    pub next_attempt_at: Option<Moment>,
    pub started_at: Option<Moment>,
    pub finished_at: Option<Moment>,
    /// Grows with each change. A client ignores versions older than what it shows.
    pub version: u64,
}

/// A parent's children by status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChildrenView {
    pub total: u32,
    pub open: u32,
    pub completed: u32,
    pub with_errors: u32,
    pub failed: u32,
    pub cancelled: u32,
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ErrorView {
    /// `retryable`, `rate_limited`, `fatal`, `timeout`, `crash`, `deadline`, `children`, …;
    /// `unknown` for any other text in the database.
    pub class: String,
    pub message: String,
    /// The chain of causes, if there is one.
    pub detail: Option<String>,
    pub at: Moment,
    pub attempt: u32,
}

/// One run of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Attempt)]
pub struct AttemptView {
    pub attempt: u32,
    /// `running`, `completed`, `failed`, `timed_out`, `snoozed`, `handed_back`, `crashed` or
    /// `cancelled`.
    #[schema(value_type = String)]
    pub outcome: AttemptEndKind,
    #[schema(value_type = Option<uuid::Uuid>)]
    pub node_id: Option<longhaul_domain::NodeId>,
    pub host: Option<String>,
    pub started_at: Option<Moment>,
    pub ended_at: Option<Moment>,
    pub error: Option<ErrorView>,
}

/// A log line of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = LogLine)]
pub struct LogView {
    pub number: u64,
    pub attempt: u32,
    /// `info`, `warn` or `error`.
    #[schema(value_type = String)]
    pub level: LogLevel,
    pub message: String,
    pub logged_at: Moment,
}

impl From<TaskRecord> for TaskSummary {
    fn from(task: TaskRecord) -> Self {
        Self::of(&task)
    }
}

impl TaskSummary {
    pub fn of(task: &TaskRecord) -> Self {
        Self {
            task_id: task.id,
            user_id: task.owner.clone(),
            task_type: task.task_type.clone(),
            status: task.status,
            queue: task.queue.to_string(),
            tier: task.tier.clone(),
            task_key: task.task_key.clone(),
            correlation_id: task.correlation_id.clone(),
            parent_task_id: task.parent_id,
            priority: task.priority,
            attempt: task.attempt,
            max_attempts: task.max_attempts,
            retry_count: task.retry_count,
            progress: task.progress.clone(),
            error_message: task.error.as_ref().map(|error| error.message.clone()),
            children: task.children.into(),
            created_at: task.created_at.into(),
            updated_at: task.updated_at.into(),
            run_at: task.due_at.into(),
            next_attempt_at: task.status.is_claimable().then(|| task.due_at.into()),
            started_at: task.started_at.map(Moment),
            finished_at: task.finished_at.map(Moment),
            version: task.version,
        }
    }
}

impl From<TaskRecord> for TaskView {
    fn from(task: TaskRecord) -> Self {
        Self {
            summary: TaskSummary::of(&task),
            parameters: task.parameters,
            checkpoint: task.checkpoint,
            result: task.result,
            result_url: task.result_url,
            error: task.error.map(ErrorView::from),
            memo: task.memo,
            phase: task.phase,
            snooze_count: task.snooze_count,
            crash_count: task.crash_count,
            retry_policy: task.retry,
            last_attempt_at: task.last_attempt_at.map(Moment),
            timeout: task.timeout_ms.map(WireDuration::from_millis),
            deadline: task.deadline_at.map(Moment),
            node_id: task.node_id,
            host: task.host,
            trace_context: task.trace_context,
            artifact_expires_at: task.artifact_expires_at.map(Moment),
            artifact_state: task.artifact_state,
        }
    }
}

impl From<ChildCounts> for ChildrenView {
    fn from(counts: ChildCounts) -> Self {
        let ChildCounts {
            total,
            completed,
            with_errors,
            failed,
            cancelled,
        } = counts;

        Self {
            total,
            open: counts.open(),
            completed,
            with_errors,
            failed,
            cancelled,
        }
    }
}

impl From<TaskError> for ErrorView {
    fn from(error: TaskError) -> Self {
        let TaskError {
            class,
            message,
            detail,
            at,
            attempt,
        } = error;

        Self {
            class,
            message,
            detail,
            at: at.into(),
            attempt,
        }
    }
}

impl From<Attempt> for AttemptView {
    fn from(one: Attempt) -> Self {
        Self {
            attempt: one.attempt,
            outcome: one.end,
            node_id: one.node_id,
            host: one.host,
            started_at: one.started_at.map(Moment),
            ended_at: one.ended_at.map(Moment),
            error: one.error.map(ErrorView::from),
        }
    }
}

impl From<LogEntry> for LogView {
    fn from(line: LogEntry) -> Self {
        let LogEntry {
            number,
            attempt,
            level,
            message,
            logged_at,
        } = line;

        Self {
            number,
            attempt,
            level,
            message,
            logged_at: logged_at.into(),
        }
    }
}

/// The status of a task.
#[derive(Debug, Clone, Copy, ToSchema, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schema(as = Status)]
pub enum StatusSchema {
    Queued,
    Running,
    Retrying,
    Waiting,
    Completed,
    CompletedWithErrors,
    Failed,
    Cancelled,
    DeadLetter,
}

/// How long to wait before each further attempt.
#[derive(Debug, Clone, Copy, ToSchema, Serialize)]
#[serde(rename_all = "camelCase")]
#[schema(as = RetryPolicy)]
pub struct RetryPolicySchema {
    pub initial_ms: u64,
    pub factor: f64,
    pub jitter: f64,
    pub max_ms: u64,
}
