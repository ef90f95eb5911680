#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod end;

pub mod attempt;
pub mod children;
pub mod client;
pub mod context;
pub mod handle;
pub mod hooks;
pub mod job;
pub mod kind;
pub mod progress;
pub mod question;
#[doc(hidden)]
pub mod random;
pub mod registry;
pub mod settings;
pub mod state;
pub mod stop;
mod stop_reason;
pub mod submission;
pub mod task;
#[cfg(feature = "testing")]
pub mod testing;

pub use attempt::{AttemptContext, AttemptServices, Handler, Hook};
pub use children::{Child, Children};
pub use client::{Client, EagerStart};
pub use context::Context;
pub use end::retry;
pub use handle::{Handle, NoResult};
pub use hooks::Hooks;
pub use job::{Job, Permit};
pub use kind::{Kind, Named};
pub use progress::Progress;
pub use question::Question;
pub use registry::{Registry, TypeInfo};
pub use settings::TypeSettings;
pub use state::State;
pub use stop::{AnyError, Class, Outcome, Stop, classify_by_type};
pub use stop_reason::StopReason;
pub use submission::Submission;
pub use task::{Task, TaskInfo};
