//! The HTTP API over real sockets, on a SQLite file, with the sample types.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test: what is not as it must be stops it"
)]

mod access;
mod artifacts;
mod changes;
mod client;
mod correlation;
mod deploy;
mod edges;
mod live;
mod metrics;
mod output;
mod pages;
mod platform;
mod readiness;
mod reads;
mod refusals;
mod server;
mod socket;
mod standing;
mod submits;
mod tokens;
mod types;
