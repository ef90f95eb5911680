//! What operators decide: defaults, then one TOML file, then variables, then flags, each over the one before.
//!
//! [`keys`] lists every key with its documentation; [`load`] brings the four sources together and refuses what is not
//! on the list; [`settings`] turns the result into what the rest of the program takes.

mod bounds;
mod document;
mod keys;
mod load;
mod nearest;
mod secret;
mod sections;
mod settings;

pub use document::document;
pub use load::{Sources, load};
pub use secret::{SecretText, SecretUrl};
pub use sections::{
    Artifacts, Broker, Config, Duties, Events, ExternalEvents, Http, Identity, IdentityKind, Lanes,
    LimitRule, Log, QueueShare, Redis, Routes, RoutingRule, Store, Telemetry, Worker,
};
