//! The contracts that are not about tasks in a database: limits, events, streams, files and bells.
//!
//! One folder for each outside system, the same file names in each. [`local`] needs none: it serves one process, in
//! memory and in a folder; [`redis`] is for a fleet. This crate never knows a database and never decides what a task may do.

#![cfg_attr(
    not(feature = "fleet"),
    expect(dead_code, reason = "what only the servers' clients use")
)]

pub mod artifact;
pub mod local;
#[cfg(feature = "fleet")]
pub mod rabbitmq;
#[cfg(feature = "fleet")]
pub mod redis;

mod names;
mod random;
