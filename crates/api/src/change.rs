//! Changes of one task, or of all that match a filter.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{time::Moment, whole::whole};

/// The fields to change. An absent field stays as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TaskChange {
    /// The new due time of a task that is not due yet.
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

/// A retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RetryRequest {
    pub scope: RetryScope,
}

/// The task itself, from its last checkpoint, or only its failed children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum RetryScope {
    #[default]
    Task,
    FailedChildren,
}

/// The result of a bulk change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BulkAnswer {
    /// Tasks that match the filters.
    pub matched: usize,
    /// Matching tasks that were changed.
    pub changed: usize,
    /// Set when more tasks match than one call changes: repeat the call with this as `cursor`.
    pub next_cursor: Option<String>,
}
