//! Queues, nodes, types, statistics, and why a task is not running yet.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{duration::WireDuration, time::Moment};

/// A queue, and how many tasks it has by status.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Queue)]
pub struct QueueView {
    pub name: String,
    pub paused: bool,
    pub paused_at: Option<Moment>,
    /// Tasks by status, without zeros.
    pub tasks: BTreeMap<String, i64>,
}

/// A process that runs tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Node)]
pub struct NodeView {
    #[schema(value_type = uuid::Uuid)]
    pub node_id: longhaul_domain::NodeId,
    pub name: String,
    pub host: String,
    pub started_at: Moment,
    pub heartbeat_at: Moment,
    /// When it was declared dead.
    pub lost_at: Option<Moment>,
    /// The queues that it claims from; absent for nodes of older versions.
    pub queues: Option<Vec<String>>,
    /// The task types that it runs.
    pub task_types: Option<Vec<String>>,
    /// Tasks that it runs at once; 0 for a node that only does maintenance.
    pub slots: Option<usize>,
}

/// A registered task type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TypeDefinition)]
pub struct TypeView {
    pub task_type: String,
    /// JSON Schema of the parameters.
    pub parameters: serde_json::Value,
    /// JSON Schema of the result.
    pub result: serde_json::Value,
    /// JSON Schema of the progress; `null` from older servers.
    #[serde(default)]
    pub progress: serde_json::Value,
    /// The queue, if the type names one.
    pub queue: Option<String>,
    pub expected_duration: Option<WireDuration>,
    pub max_attempts: u32,
    pub timeout: Option<WireDuration>,
    pub cancellable: bool,
}

/// Current counts, and statistics of a time span.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Stats)]
pub struct StatsView {
    /// Start of the span that `types` covers, in whole hours.
    pub from: Moment,
    pub to: Moment,
    /// Current tasks by status.
    pub tasks: BTreeMap<String, i64>,
    /// One row per type and queue.
    pub types: Vec<TypeStats>,
}

/// Statistics of one type in one queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TypeStats {
    pub task_type: String,
    pub queue: String,
    /// Current tasks by status.
    pub tasks: BTreeMap<String, i64>,
    /// Tasks that ended in the span, by status.
    pub ended: BTreeMap<String, i64>,
    pub completed_on_first_attempt: i64,
    pub completed_on_second_attempt: i64,
    pub completed_later: i64,
    /// From due to the start of the last attempt, of tasks that ended in the span.
    pub wait: PercentilesView,
    /// Duration of the last attempt, of tasks that ended in the span.
    pub run: PercentilesView,
}

/// Percentiles in milliseconds, within ten percent; absent without measurements.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Percentiles)]
pub struct PercentilesView {
    pub p50_ms: Option<f64>,
    pub p95_ms: Option<f64>,
    pub p99_ms: Option<f64>,
}

/// Why a task is not running yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Why)]
pub struct WhyView {
    /// The reason for people.
    pub sentence: String,
    /// The reason for programs: `ended`, `running`, `waits_for_children`, `store_not_writable`,
    /// `paused`, `not_due`, `limited`, `no_node`, `no_worker`, `queue_not_served`, `slots_full` or
    /// `in_line`.
    pub reason: String,
    pub facts: BTreeMap<String, serde_json::Value>,
}

/// The health of the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// `ok`, or `degraded`: it works without something that it can do without for a while.
    pub status: String,
    /// What is unavailable: `broker`, `redis`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}
