//! The program `longhaul` as people and scripts run it, against a server in this process.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test: what is not as it must be stops it"
)]

#[expect(dead_code, reason = "the tests of the API use more of it")]
#[path = "../http/client.rs"]
mod client;
#[expect(dead_code, reason = "the tests of the API use more of it")]
#[path = "../http/server.rs"]
mod server;
#[path = "../http/types.rs"]
mod types;

mod changes;
mod inputs;
mod outputs;
mod program;
mod screen;
mod watching;
