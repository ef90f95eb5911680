//! What people change: one task, or all that match.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{time::Moment, whole::whole};

/// What to change; what is absent stays.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TaskChange {
    /// The new time of a task that waits for one.
    pub run_at: Option<Moment>,
    #[serde(deserialize_with = "whole")]
    #[schema(minimum = 1, maximum = 9)]
    pub priority: Option<u8>,
    #[serde(deserialize_with = "whole")]
    #[schema(minimum = 1, maximum = 1000)]
    pub max_attempts: Option<u32>,
    #[schema(min_length = 1, max_length = 100, pattern = "^[A-Za-z0-9_.:/-]+$")]
    pub queue: Option<String>,
}

/// What a retry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RetryRequest {
    pub scope: RetryScope,
}

/// The task itself, from its last checkpoint, or only those of its children that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum RetryScope {
    #[default]
    Task,
    FailedChildren,
}

/// What a bulk change did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BulkAnswer {
    /// Tasks that the filters fit.
    pub matched: usize,
    /// Those of them that the change was possible for.
    pub changed: usize,
    /// More match than one call changes: the same call with this as `cursor` goes on.
    pub next_cursor: Option<String>,
}
