//! The program `longhaul` and its commands, in one program of tests.
//!
//! What depends on the store runs on all three, each case on a fresh database. A server that is
//! missing fails its cases and says how to get it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test: what is not as it must be stops it"
)]

mod commands;
mod deployment;
mod fleet;
mod logging;
mod program;
#[expect(
    dead_code,
    reason = "shared with the tests of the server, which use more of it"
)]
#[path = "../../../server/tests/http/support/mod.rs"]
mod support;
mod telemetry;

use libtest_mimic::Trial;
use longhaul_testkit::suite;
use support::{client, database, server, trial};

fn main() {
    let arguments = suite::arguments();
    let parts = [
        commands::trials(),
        deployment::trials(),
        fleet::trials(),
        logging::trials(),
        program::trials(),
        telemetry::trials(),
    ];

    let trials: Vec<Trial> = parts.into_iter().flatten().collect();
    libtest_mimic::run(&arguments, trials).exit();
}
