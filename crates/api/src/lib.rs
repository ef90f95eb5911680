#![doc = include_str!("../README.md")]

#[cfg(feature = "client")]
pub mod client;

mod document;
pub mod duration;
pub mod object;
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
pub use event::TaskEventView;
pub use output::{OutputChunk, OutputEnd, OutputReset, OutputRewind};
pub use page::Page;
pub use platform::{Health, NodeView, QueueView, StatsView, TypeStats, TypeView, WhyView};
pub use problem::{FieldProblem, Problem};
pub use submit::{BatchAnswer, BatchRequest, SubmitAnswer, SubmitRequest};
pub use task::{AttemptView, LogView, TaskSummary, TaskView};
pub use time::Moment;
