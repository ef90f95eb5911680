//! Task events, as live streams send them.

use longhaul_domain::{
    Status, TaskId,
    event::{EventKind, TaskEvent},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::task::StatusSchema;

/// A change of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TaskEvent)]
pub struct TaskEventView {
    #[schema(value_type = uuid::Uuid)]
    pub task_id: TaskId,
    pub user_id: String,
    pub task_type: String,
    /// `submitted`, `started`, `progress`, `waiting`, `requeued`, `retrying`, `rescheduled`,
    /// `completed`, `failed`, `dead_lettered` or `cancelled`.
    #[schema(value_type = String)]
    pub event: EventKind,
    #[schema(value_type = StatusSchema)]
    pub status: Status,
    pub attempt: u32,
    /// The task's version. A client ignores events older than what it shows.
    pub version: u64,
    pub progress: Option<serde_json::Value>,
    pub error: Option<String>,
    pub correlation_id: Option<String>,
}

impl From<TaskEvent> for TaskEventView {
    fn from(event: TaskEvent) -> Self {
        Self {
            task_id: event.task_id,
            user_id: event.owner,
            task_type: event.task_type,
            event: event.event,
            status: event.status,
            attempt: event.attempt,
            version: event.version,
            progress: event.progress,
            error: event.error,
            correlation_id: event.correlation_id,
        }
    }
}
