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
    /// Only those that are not zero.
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
    /// The queues that it takes tasks from; nothing of a node whose version does not say.
    pub queues: Option<Vec<String>>,
    /// The types that it runs.
    pub task_types: Option<Vec<String>>,
    /// Tasks that it runs at once; 0 of a node that does duties alone.
    pub slots: Option<usize>,
}

/// A type that tasks can be submitted of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TaskType)]
pub struct TypeView {
    pub task_type: String,
    /// JSON Schema of the parameters.
    pub parameters: serde_json::Value,
    /// JSON Schema of the result.
    pub result: serde_json::Value,
    /// JSON Schema of the progress. What an older server does not say is null.
    #[serde(default)]
    pub progress: serde_json::Value,
    /// The queue, when the type names one.
    pub queue: Option<String>,
    pub expected_duration: Option<WireDuration>,
    pub max_attempts: u32,
    pub timeout: Option<WireDuration>,
    pub cancellable: bool,
}

/// Counts of the present, and statistics of a span of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Stats)]
pub struct StatsView {
    /// The span that `types` is about, in whole hours.
    pub from: Moment,
    pub to: Moment,
    /// Tasks that now stand at a status.
    pub tasks: BTreeMap<String, i64>,
    /// One row for each type and queue.
    pub types: Vec<TypeStats>,
}

/// A type in a queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TypeStats {
    pub task_type: String,
    pub queue: String,
    /// Tasks that now stand at a status.
    pub tasks: BTreeMap<String, i64>,
    /// Tasks that ended in the span, by status.
    pub ended: BTreeMap<String, i64>,
    pub completed_on_first_attempt: i64,
    pub completed_on_second_attempt: i64,
    pub completed_later: i64,
    /// From due to the start of the last attempt, of those that ended in the span.
    pub wait: PercentilesView,
    /// The last attempt of those that ended in the span.
    pub run: PercentilesView,
}

/// Percentiles in milliseconds, off by a tenth at the most; absent where nothing was measured.
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
    /// For people.
    pub sentence: String,
    /// For programs: `ended`, `running`, `waits_for_children`, `paused`, `not_due`, `limited`, `no_node`, `no_worker`, `queue_not_served`,
    /// `slots_full` or `in_line`.
    pub reason: String,
    pub facts: BTreeMap<String, serde_json::Value>,
}

/// Whether the process does its work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// `ok`, or `degraded`: it works, and something that it can do without for a while is away.
    pub status: String,
    /// What is away, by name: `broker`, `redis`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
}
