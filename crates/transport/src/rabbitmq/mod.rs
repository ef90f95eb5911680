//! The broker contract on RabbitMQ, and the event bus of all processes on it.
//!
//! Nothing here is the truth: a hint is only a hint, and any message may be lost. This code makes a
//! loss cheap. A link to the server is built and given up as a whole, a publish ends within
//! seconds, and a consumer that stalls is rebuilt. See `docs/broker.md`.

mod address;
mod broker;
mod cloud_event;
mod connection;
mod consumer_channel;
mod control;
mod event_bus;
mod hints;
mod link;
mod message;
mod options;
mod progress;
mod publisher;
mod queue_reader;
mod remote_events;
mod topology;
mod traffic;
mod watchdog;

pub use broker::RabbitBroker;
pub use event_bus::RabbitEventBus;
pub use options::{QueueKind, RabbitOptions};
