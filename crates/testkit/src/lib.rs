#![doc = include_str!("../README.md")]
#![expect(
    clippy::expect_used,
    reason = "a test library: a failed expectation stops the test"
)]
#![cfg_attr(
    feature = "suites",
    expect(
        clippy::unwrap_used,
        clippy::panic,
        reason = "a test library: a failed expectation stops the test"
    )
)]

pub mod clock;
#[cfg(feature = "fault_proxy")]
pub mod fault_proxy;
pub mod names;
#[cfg(feature = "rabbitmq")]
pub mod rabbit_namespace;
pub mod reference;

#[cfg(feature = "suites")]
pub mod fixture;
#[cfg(feature = "suites")]
pub mod lifecycle_document;
#[cfg(feature = "suites")]
pub mod memory_broker;
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
pub mod event_bus_suite;
#[cfg(feature = "suites")]
pub mod notifier_suite;
#[cfg(feature = "suites")]
pub mod progress_cache_suite;
#[cfg(feature = "suites")]
pub mod rate_limiter_suite;
#[cfg(feature = "suites")]
pub mod stream_log_suite;
