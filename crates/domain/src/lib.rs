#![doc = include_str!("../README.md")]

pub mod bounds;
pub mod error;
pub mod ids;
pub mod json;
pub mod time;

pub mod access_token;
pub mod artifact;
pub mod attempt;
pub mod log;
pub mod names;
pub mod node;
pub mod queue;
pub mod retry;
pub mod submission;
pub mod task;
pub mod task_info;
pub mod token_text;

pub mod event;
pub mod filter;
pub mod statistics;

pub mod contract;
pub mod lifecycle;

pub use access_token::{AccessToken, KnownToken, NewAccessToken, TokenStanding};
pub use attempt::{Attempt, AttemptEndKind};
pub use error::{Invalid, StoreError};
pub use ids::{LeaseToken, NodeId, TaskId, TaskIdSequence};
pub use json::Json;
pub use log::{LogEntry, LogLevel, LogLine, LogPage};
pub use names::QueueName;
pub use node::{NodeRecord, Serves};
pub use retry::RetryPolicy;
pub use submission::{Idempotency, NewTask, RunAt};
pub use task::{ChildCounts, Lease, Phase, Status, TaskError, TaskRecord};
pub use task_info::TaskInfo;
pub use time::{Clock, Timestamp};
pub use token_text::{TokenFault, TokenText};
