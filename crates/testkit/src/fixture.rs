//! What a backend supplies for the store suite: a fresh, empty store and its clock.

use std::{any::Any, fmt, sync::Arc};

use futures::future::BoxFuture;
use longhaul_domain::{contract::Store, event::OutboxPolicy};

use crate::clock::TestClock;

/// A fresh, empty store for one case.
pub struct Fixture {
    pub store: Arc<dyn Store>,
    /// The time of the store follows this clock's offset.
    pub clock: TestClock,
    /// A guard that must live as long as the store. Dropping it removes the database.
    _keep: Option<Box<dyn Any + Send + Sync>>,
}

/// Makes a fresh store that writes the messages of the policy.
pub type FixtureFactory = Arc<dyn Fn(OutboxPolicy) -> BoxFuture<'static, Fixture> + Send + Sync>;

impl Fixture {
    pub fn new(
        store: Arc<dyn Store>,
        clock: TestClock,
        keep: Option<Box<dyn Any + Send + Sync>>,
    ) -> Self {
        Self {
            store,
            clock,
            _keep: keep,
        }
    }
}

impl fmt::Debug for Fixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fixture")
            .field("store", &self.store)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}
