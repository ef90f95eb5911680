//! The program `longhaul` and its commands, in one program of tests.
//!
//! Cases that depend on the store run on all three, each on a fresh database. A missing server
//! fails its cases and the message says how to start one.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failure stops the test"
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
    let modules = [
        commands::trials(),
        deployment::trials(),
        fleet::trials(),
        logging::trials(),
        program::trials(),
        telemetry::trials(),
    ];

    let trials: Vec<Trial> = modules.into_iter().flatten().collect();
    libtest_mimic::run(&arguments, trials).exit();
}
