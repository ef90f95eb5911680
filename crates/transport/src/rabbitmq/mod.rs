//! The broker contract on RabbitMQ, and the news of all processes over it.
//!
//! Nothing here is the truth: bells are hints, and everything may be lost. What is here keeps that cheap: one link to
//! the server that is built whole and given up whole, publishes that end within seconds, and consumers that are rebuilt
//! when they fall silent. See `docs/broker.md`.

mod address;
mod bells;
mod broker;
mod cloud_event;
mod connection;
mod consumer;
mod control;
mod event_bus;
mod intake_channel;
mod link;
mod message;
mod news;
mod options;
mod progress;
mod publisher;
mod topology;
mod traffic;
mod watchdog;

pub use broker::RabbitBroker;
pub use event_bus::RabbitEventBus;
pub use options::{LaneKind, RabbitOptions};
