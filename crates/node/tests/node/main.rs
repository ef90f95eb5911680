//! Tests of the node with its neighbours: handlers, the engine, and the facade that starts it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests; a failure stops the test"
)]

// What the cases share.
mod memory_store;
mod process;
mod remote_store;
mod store_link;

// Attempts and what their handlers call.
mod attempt_ends;
mod checkpoints;
mod children;
mod handlers;
mod hooks;
mod output;
mod permits;
mod questions;

// The loops of a node, whose store may be slow, silent or away.
mod dead_nodes;
mod drain;
mod events;
mod free_slots;
mod lost_answers;
mod maintenance_jobs;
mod named_hints;
mod polling;
mod reports;
mod shutdown;
mod unanswered_calls;

mod broker;
mod crashed_files;
