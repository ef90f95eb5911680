//! The typed task API, and the executor that runs handlers.
//!
//! A user implements [`Task`] (or hands over an async function) and registers it in a [`Registry`]; a [`Worker`]
//! claims tasks of the registered types, runs them, and reports their ends. A handler sees its [`Context`] and
//! nothing else of the engine. A handler that panics, hangs or gets parameters that do not parse ends only its own
//! task.

#![warn(missing_docs)]

#[cfg(test)]
mod dying_files;
mod patience;
#[cfg(test)]
mod quiet;
mod random;

pub mod stop;

pub mod children;
pub mod context;
pub mod handle;
pub mod job;
pub mod kind;
pub mod settings;
pub mod task;

pub mod progress;
pub mod question;
mod scribe;
pub mod state;

pub mod intake;
pub mod registry;
pub mod run;
pub mod submission;

pub mod worker;

pub use children::{Child, Children};
pub use context::Context;
pub use handle::{Handle, NoResult};
pub use intake::WorkerIntake;
pub use job::{Job, Permit};
pub use kind::{Kind, Named};
pub use progress::Progress;
pub use question::Question;
pub use registry::{Registry, TypeInfo};
pub use run::Services;
pub use settings::{TypeSettings, WorkerSettings};
pub use state::State;
pub use stop::{AnyError, Class, Outcome, Stop, classify_by_type};
pub use submission::Submission;
pub use task::{Task, TaskInfo};
pub use worker::{ManualWorker, Worker};
