//! Submitting one task or many.

use longhaul_domain::{Status, TaskId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::{
    duration::WireDuration, object::objects, task::StatusSchema, time::Moment, whole::whole,
};

/// A task to submit. Absent fields have the type's defaults.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubmitRequest {
    /// The name of a registered type; `GET /api/types` lists them.
    #[schema(min_length = 1, max_length = 100, pattern = "^[A-Za-z0-9_.:/-]+$")]
    pub task_type: String,
    /// Must match the type's schema; `null` by default.
    #[serde(default)]
    #[schema(value_type = Option<serde_json::Value>)]
    pub parameters: Option<Box<RawValue>>,
    /// From 1, the default, to 9, the most urgent.
    #[serde(default, deserialize_with = "whole")]
    #[schema(minimum = 1, maximum = 9)]
    pub priority: Option<u8>,
    /// Do not run before this time. Either this or `delay`.
    #[serde(default)]
    pub run_at: Option<Moment>,
    /// Do not run before this much time has passed.
    #[serde(default)]
    pub delay: Option<WireDuration>,
    /// The queue. It overrides the routing by tier and expected duration.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 100, pattern = "^[A-Za-z0-9_.:/-]+$")]
    pub queue: Option<String>,
    /// The owner's tier; with the expected duration it decides the queue. It comes from the token
    /// or the gateway: only an administrator may name another.
    #[serde(default)]
    #[schema(
        min_length = 1,
        max_length = 200,
        pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]+$"
    )]
    pub tier: Option<String>,
    #[serde(default)]
    pub expected_duration: Option<WireDuration>,
    #[serde(default, deserialize_with = "whole")]
    #[schema(minimum = 1, maximum = 1000)]
    pub max_attempts: Option<u32>,
    /// How long one attempt may take.
    #[serde(default)]
    pub timeout: Option<WireDuration>,
    /// A business id to search by.
    #[serde(default)]
    #[schema(
        min_length = 1,
        max_length = 200,
        pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]+$"
    )]
    pub task_key: Option<String>,
    /// Ties the task to the caller's request; children inherit it.
    #[serde(default)]
    #[schema(
        min_length = 1,
        max_length = 200,
        pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]+$"
    )]
    pub correlation_id: Option<String>,
}

/// The submitted task. It is durable and has not run yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubmitAnswer {
    #[schema(value_type = uuid::Uuid)]
    pub task_id: TaskId,
    /// Always `QUEUED`, also for a repeated idempotency key.
    #[schema(value_type = StatusSchema)]
    pub status: Status,
}

/// Several tasks, submitted all or none.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BatchRequest {
    /// At most 1,000.
    #[serde(deserialize_with = "objects")]
    #[schema(min_items = 1, max_items = 1000)]
    pub tasks: Vec<SubmitRequest>,
}

/// The submitted tasks, in the order of the request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchAnswer {
    #[schema(value_type = Vec<uuid::Uuid>)]
    pub task_ids: Vec<TaskId>,
}
