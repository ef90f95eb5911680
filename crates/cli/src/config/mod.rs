//! The configuration of a node: defaults, then one TOML file, then environment variables, then
//! flags, each over the one before.
//!
//! A key is written once, as a field of its section. The field's doc comment is its text in
//! `docs/configuration.md`, its type says what it takes, and its default stands beside it. See
//! [`keys`] for how the list of keys follows from that, and [`load`](mod@load) for how the four
//! sources are merged. Each section's file also checks its values and turns them into the settings
//! of the part that uses them.

mod keys;
mod secret;

mod events;
mod http;
mod logging;
mod maintenance;
mod routing;
mod servers;
mod store;
mod worker;

mod document;
mod load;

use std::collections::BTreeMap;

use anyhow::ensure;
use longhaul::operating::WireDuration;

pub use document::document;
pub use events::{Events, ExternalEvents};
pub use http::{Http, Identity, IdentityKind};
pub use load::{Sources, load};
pub use logging::{Log, Telemetry};
pub use maintenance::Maintenance;
pub use routing::{LimitRule, Routes, RoutingRule};
pub use secret::{SecretText, SecretUrl};
pub use servers::{Broker, BrokerQueues, Redis};
pub use store::{Artifacts, Store};
pub use worker::{QueueShare, Worker};

keys::section! {
    /// All sections.
    #[derive(Default)]
    pub struct Config {
        /// The database.
        pub store: Store,
        /// The message broker between nodes.
        pub broker: Broker,
        /// Rate limits and progress that nodes share.
        pub redis: Redis,
        /// Events for other systems.
        pub events: Events,
        /// Files that tasks make.
        pub artifacts: Artifacts,
        /// The HTTP API.
        pub http: Http,
        /// How callers of the HTTP API are identified.
        pub identity: Identity,
        /// What a worker offers.
        pub worker: Worker,
        /// Background work that one node does for all.
        pub maintenance: Maintenance,
        /// Which queue a task goes to.
        pub routing: Routes,
        /// Rate limits of providers and models.
        pub limits: BTreeMap<String, LimitRule>,
        /// What is logged.
        pub log: Log,
        /// Where traces go.
        pub telemetry: Telemetry,
    }
}

impl Config {
    /// Refuses values that are of the right kind but cannot work.
    fn check(&self) -> anyhow::Result<()> {
        self.store.check()?;
        self.broker.check()?;
        self.redis.check()?;
        self.check_events()?;

        self.artifacts.check()?;
        self.http.check()?;
        self.identity.check()?;
        self.worker.check()?;
        self.maintenance.check()?;

        self.check_routing()?;
        self.check_limits()?;
        self.log.check()?;
        self.telemetry.check()
    }
}

/// Refuses a wait of 0: it would make a loop that never rests.
fn check_waits(waits: &[(&str, WireDuration)]) -> anyhow::Result<()> {
    for (name, wait) in waits {
        ensure!(wait.as_millis() > 0, "{name} is 0; allowed: at least 1ms");
    }

    Ok(())
}
