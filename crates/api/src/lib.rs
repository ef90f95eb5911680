//! The wire types of the HTTP API, version 1: what travels as JSON, and how domain types are written there.
//!
//! Names are camelCase, times RFC 3339 in UTC, ids UUID text, durations `30s` or `PT30S`. Types here hold no rules but
//! those of their spelling: what is allowed is decided by the domain and the engine. With the feature `client` there is
//! a client that speaks them.

#[cfg(feature = "client")]
pub mod client;

mod document;
pub mod duration;
pub mod time;
mod whole;

pub mod problem;

pub mod page;
pub mod submit;
pub mod task;

pub mod artifact;
pub mod change;
pub mod event;
pub mod output;
pub mod platform;
pub mod socket;

pub use artifact::ArtifactView;
pub use change::{BulkAnswer, RetryRequest, RetryScope, TaskChange};
pub use duration::WireDuration;
pub use event::TaskNews;
pub use output::{OutputChunk, OutputEnd, OutputReset, OutputRewind};
pub use page::Page;
pub use platform::{Health, NodeView, QueueView, StatsView, TypeStats, TypeView, WhyView};
pub use problem::{FieldProblem, Problem};
pub use submit::{BatchAnswer, BatchRequest, SubmitAnswer, SubmitRequest};
pub use task::{AttemptView, LogView, TaskSummary, TaskView};
pub use time::Moment;
