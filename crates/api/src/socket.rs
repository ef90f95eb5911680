//! Messages of the WebSocket.

use longhaul_domain::TaskId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{event::TaskNews, page::Page, task::TaskSummary};

/// What a client says: one of `taskId` and `all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SocketRequest {
    pub action: SocketAction,
    /// News of this task.
    #[serde(default)]
    #[schema(value_type = Option<uuid::Uuid>)]
    pub task_id: Option<TaskId>,
    /// News of all tasks of the caller's.
    #[serde(default)]
    pub all: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum SocketAction {
    Subscribe,
    Unsubscribe,
}

/// What the server says.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum SocketMessage {
    /// From now on events come; `state` follows.
    Subscribed {
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<uuid::Uuid>)]
        task_id: Option<TaskId>,
        all: bool,
    },
    /// Nothing more comes for this.
    Unsubscribed {
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<uuid::Uuid>)]
        task_id: Option<TaskId>,
        all: bool,
    },
    /// A task as it is now.
    State { task: Box<TaskSummary> },
    /// The open tasks of the caller's as they are now, the newest first.
    States {
        #[schema(value_type = Vec<TaskSummary>)]
        items: Vec<TaskSummary>,
        next_cursor: Option<String>,
    },
    /// Something happened to a task.
    Event(Box<TaskNews>),
    /// A message could not be followed. The connection stays.
    Error { code: String, detail: String },
}

impl SocketMessage {
    pub fn states(page: Page<TaskSummary>) -> Self {
        Self::States {
            items: page.items,
            next_cursor: page.next_cursor,
        }
    }
}
