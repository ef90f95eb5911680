//! What every implementation of Longhaul's contracts is tested with.
//!
//! There is one suite for each contract. A backend supplies a way to make a fresh store and runs
//! [`store_suite::trials`], or what its contract's suite is called; a change of the contract starts in the suite. [`reference::MemoryStore`] is the
//! contract in its plainest form, and the yardstick of the suite's random histories.
//!
//! This crate is for tests alone: it panics where something is not as it must be, and no product links it.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test library: what is not as it must be stops the test"
)]

pub mod clock;
pub mod fixture;
pub mod lifecycle_document;
pub mod reference;
pub mod store_suite;
pub mod suite;

pub mod artifact_suite;
pub mod doorbell_suite;
pub mod event_bus_suite;
pub mod rate_limiter_suite;
pub mod stream_log_suite;
