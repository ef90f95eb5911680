//! Messages of the WebSocket.

use longhaul_domain::TaskId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{event::TaskEventView, page::Page, task::TaskSummary};

/// A message of a client. It sets either `taskId` or `all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SocketRequest {
    pub action: SocketAction,
    /// Follow this task.
    #[serde(default)]
    #[schema(value_type = Option<uuid::Uuid>)]
    pub task_id: Option<TaskId>,
    /// Follow all of the caller's tasks.
    #[serde(default)]
    pub all: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum SocketAction {
    Subscribe,
    Unsubscribe,
}

/// A message of the server.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum SocketMessage {
    /// The subscription is active; `state` follows.
    Subscribed {
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<uuid::Uuid>)]
        task_id: Option<TaskId>,
        all: bool,
    },
    /// The subscription has ended.
    Unsubscribed {
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<uuid::Uuid>)]
        task_id: Option<TaskId>,
        all: bool,
    },
    /// The current state of a task.
    State { task: Box<TaskSummary> },
    /// The current state of the caller's open tasks, newest first.
    States {
        #[schema(value_type = Vec<TaskSummary>)]
        items: Vec<TaskSummary>,
        next_cursor: Option<String>,
    },
    /// A change of a task.
    Event(Box<TaskEventView>),
    /// A message was refused. The connection stays open.
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
