//! The program itself, as a process, on the three stores.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test: what is not as it must be stops it"
)]

mod database;
mod process;

mod doctor;
mod migrate;
mod nodes;
mod refusals;
mod serve;
mod starts;
mod token;
