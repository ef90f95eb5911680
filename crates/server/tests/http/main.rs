//! The HTTP API over real sockets, with the sample types, in this process.
//!
//! Cases that depend on the store run on all three, each on a fresh database. A missing server
//! fails its cases and the message says how to start one.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failure stops the test"
)]

mod access;
mod artifacts;
mod bodies;
mod changes;
mod connections;
mod correlation;
mod deploy;
mod gateway;
mod live;
mod long_lived;
mod metrics;
mod other_process;
mod output;
mod pages;
mod platform;
mod races;
mod readiness;
mod reads;
mod refusals;
mod slow_clients;
mod socket;
mod stream_limits;
mod submits;
#[expect(
    dead_code,
    reason = "shared with the tests of the program, which use more of it"
)]
mod support;
mod tokens;
mod unknown_tokens;

use libtest_mimic::Trial;
use longhaul_testkit::suite;
use support::{client, database, server, trial};

fn main() {
    let arguments = suite::arguments();
    let modules = [
        access::trials(),
        artifacts::trials(),
        bodies::trials(),
        changes::trials(),
        connections::trials(),
        correlation::trials(),
        deploy::trials(),
        gateway::trials(),
        live::trials(),
        long_lived::trials(),
        metrics::trials(),
        output::trials(),
        pages::trials(),
        platform::trials(),
        races::trials(),
        readiness::trials(),
        reads::trials(),
        refusals::trials(),
        slow_clients::trials(),
        stream_limits::trials(),
        socket::trials(),
        submits::trials(),
        tokens::trials(),
        unknown_tokens::trials(),
    ];

    let trials: Vec<Trial> = modules.into_iter().flatten().collect();
    libtest_mimic::run(&arguments, trials).exit();
}
