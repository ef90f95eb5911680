//! The HTTP API over real sockets, on a SQLite file, with the sample types.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test: what is not as it must be stops it"
)]

mod access;
mod changes;
mod client;
mod edges;
mod live;
mod platform;
mod reads;
mod refusals;
mod server;
mod submits;
mod tokens;
