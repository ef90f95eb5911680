//! Submitting one task or many.

use longhaul_domain::{Status, TaskId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::{duration::WireDuration, task::StatusSchema, time::Moment, whole::whole};

/// A task to be made. What is absent is as the type says.
#[derive(Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SubmitRequest {
    /// The name of a registered type; `GET /api/types` lists them.
    #[schema(min_length = 1, max_length = 100, pattern = "^[A-Za-z0-9_.:/-]+$")]
    pub task_type: String,
    /// What fits the type's schema. Without it, `null`.
    #[serde(default)]
    #[schema(value_type = Option<serde_json::Value>)]
    pub parameters: Option<Box<RawValue>>,
    /// From 1, the default, to 9, which goes first.
    #[serde(default, deserialize_with = "whole")]
    #[schema(minimum = 1, maximum = 9)]
    pub priority: Option<u8>,
    /// Not before this moment. Either this or `delay`.
    #[serde(default)]
    pub run_at: Option<Moment>,
    /// Not before so long from now.
    #[serde(default)]
    pub delay: Option<WireDuration>,
    /// The queue, whatever tier and expected duration say.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 100, pattern = "^[A-Za-z0-9_.:/-]+$")]
    pub queue: Option<String>,
    /// The owner's class; with the expected duration it decides the queue. It comes with the token or the gateway: only an
    /// administrator may say another.
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
    /// A business id that people search by.
    #[serde(default)]
    #[schema(
        min_length = 1,
        max_length = 200,
        pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]+$"
    )]
    pub task_key: Option<String>,
    /// What ties the task to a request of the caller's; children inherit it.
    #[serde(default)]
    #[schema(
        min_length = 1,
        max_length = 200,
        pattern = "^[^\\x00-\\x1f\\x7f-\\x9f]+$"
    )]
    pub correlation_id: Option<String>,
}

/// The task is durable; nothing of it has run yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubmitAnswer {
    #[schema(value_type = uuid::Uuid)]
    pub task_id: TaskId,
    /// `QUEUED`: where every task starts. A repeated key has the same answer.
    #[schema(value_type = StatusSchema)]
    pub status: Status,
}

/// Many tasks, all or none.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BatchRequest {
    /// At most 1,000.
    #[schema(min_items = 1, max_items = 1000)]
    pub tasks: Vec<SubmitRequest>,
}

/// The ids in the order of the request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BatchAnswer {
    #[schema(value_type = Vec<uuid::Uuid>)]
    pub task_ids: Vec<TaskId>,
}
