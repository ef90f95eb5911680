//! What a task is, what may happen to it, and what we ask of the outside world.
//!
//! Everything here is data and pure decisions. This crate never performs I/O, never reads a clock,
//! never draws a random number and never knows a database: time and randomness are passed in, and
//! the outside world is described by the traits in [`contract`].

pub mod bounds;
pub mod error;
pub mod ids;
pub mod json;
pub mod time;

pub mod access_token;
pub mod artifact;
pub mod attempt;
pub mod log;
pub mod node;
pub mod queue;
pub mod retry;
pub mod submission;
pub mod task;
pub mod token_text;

pub mod event;
pub mod event_selection;
pub mod filter;
pub mod statistics;

pub mod contract;
pub mod lifecycle;

pub use access_token::{AccessToken, KnownToken, NewAccessToken, TokenStanding};
pub use attempt::{Attempt, AttemptOutcome};
pub use error::{Invalid, StoreError};
pub use ids::{LeaseToken, NodeId, TaskId, TaskIdSequence};
pub use json::Json;
pub use log::{LogEntry, LogLevel, LogLine, LogPage};
pub use node::{Node, Serves};
pub use retry::RetryPolicy;
pub use submission::{Idempotency, NewTask, RunAt};
pub use task::{ChildCounts, Lease, Phase, Status, Task, TaskError};
pub use time::{Clock, Timestamp};
pub use token_text::{TokenFault, TokenText};
