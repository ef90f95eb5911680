//! What every implementation of Longhaul's contracts is tested with.
//!
//! There is one suite for each contract. A backend supplies a way to make a fresh store and runs
//! `store_suite::trials`, or what its contract's suite is called; a change of the contract starts in the suite.
//! [`reference::MemoryStore`] is the
//! contract in its plainest form, and the yardstick of the suite's random histories.
//!
//! This crate is for tests alone: it panics where something is not as it must be. No product runs it; the facade's
//! `testing` module takes the clock and the store in memory from here for the tests of users, without the suites.

#![expect(
    clippy::expect_used,
    reason = "a test library: what is not as it must be stops the test"
)]
#![cfg_attr(
    feature = "suites",
    expect(
        clippy::unwrap_used,
        clippy::panic,
        reason = "a test library: what is not as it must be stops the test"
    )
)]

pub mod clock;
#[cfg(feature = "fault_proxy")]
pub mod fault_proxy;
#[cfg(feature = "rabbitmq")]
pub mod rabbit_namespace;
pub mod reference;

#[cfg(feature = "suites")]
pub mod fixture;
#[cfg(feature = "suites")]
pub mod lifecycle_document;
#[cfg(feature = "suites")]
pub mod own_server;
#[cfg(feature = "suites")]
pub mod store_suite;
#[cfg(feature = "suites")]
pub mod suite;

#[cfg(feature = "suites")]
pub mod artifact_suite;
#[cfg(feature = "suites")]
pub mod broker_suite;
#[cfg(feature = "suites")]
pub mod doorbell_suite;
#[cfg(feature = "suites")]
pub mod event_bus_suite;
#[cfg(feature = "suites")]
pub mod progress_cache_suite;
#[cfg(feature = "suites")]
pub mod rate_limiter_suite;
#[cfg(feature = "suites")]
pub mod stream_log_suite;
