//! The contracts that are not about tasks in a database: limits, events, streams, files and bells.
//!
//! One folder for each outside system, the same file names in each. [`local`] needs none: it serves one process, in
//! memory and in a folder; [`redis`] is for a fleet. This crate never knows a database and never decides what a task may do.

pub mod artifact;
pub mod local;
pub mod rabbitmq;
pub mod redis;

mod names;
mod random;
