//! What a program sets before it starts.

mod files;
mod slot_check;
mod task_types;

use std::sync::Arc;

use longhaul_domain::{
    Clock, Invalid,
    contract::{
        Store,
        rate_limiter::{Limit, LimitRules},
    },
};
use longhaul_engine::{routing::Routing, tiers::TierSource};
use longhaul_node::{WorkerSettings, maintenance::MaintenanceSettings};
use longhaul_sdk::Registry;
use longhaul_store::{SqlStore, SystemClock};

use crate::{applications::Applications, fleet::FleetSettings, tier_source::tier_source};
pub(crate) use files::FileSettings;

/// The configuration of a Longhaul. [`Longhaul::open`](crate::Longhaul::open) makes one.
#[derive(Debug)]
pub struct Builder {
    pub(crate) store: Arc<dyn Store>,
    /// The same store, if it is a database.
    pub(crate) sql: Option<SqlStore>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) registry: Registry,
    /// The first configuration error, reported at the start.
    pub(crate) problem: Option<Invalid>,
    pub(crate) worker: WorkerSettings,
    pub(crate) maintenance: MaintenanceSettings,
    pub(crate) fleet: FleetSettings,
    pub(crate) routing: Routing,
    pub(crate) tiers: Option<Arc<dyn TierSource>>,
    pub(crate) limits: LimitRules,
    pub(crate) files: FileSettings,
    pub(crate) applications: Applications,
}

impl Builder {
    /// Uses a store of any kind.
    pub(crate) fn on(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            sql: None,
            clock,
            registry: Registry::default(),
            problem: None,
            worker: WorkerSettings::default(),
            maintenance: MaintenanceSettings::default(),
            fleet: FleetSettings::default(),
            routing: Routing::default(),
            tiers: None,
            limits: LimitRules::default(),
            files: FileSettings::default(),
            applications: Applications::default(),
        }
    }

    /// Uses a database.
    pub(crate) fn on_database(store: SqlStore) -> Self {
        let clock = Arc::new(SystemClock::default());
        let mut builder = Self::on(Arc::new(store.clone()), clock);

        builder.sql = Some(store);
        builder
    }

    /// How many tasks run at once in this process.
    #[must_use]
    pub const fn slots(mut self, slots: usize) -> Self {
        self.worker.slots = slots;
        self
    }

    /// All worker settings.
    #[must_use]
    pub fn worker(mut self, settings: WorkerSettings) -> Self {
        self.worker = settings;
        self
    }

    /// How many tasks of this process may use a named resource at once. [`Self::worker`] replaces
    /// all.
    #[must_use]
    pub fn resource(mut self, name: &str, tasks: usize) -> Self {
        self.worker.resources.insert(name.to_owned(), tasks);
        self
    }

    /// When nodes count as dead, and how long ended tasks are kept.
    #[must_use]
    pub fn maintenance(mut self, settings: MaintenanceSettings) -> Self {
        self.maintenance = settings;
        self
    }

    /// The queue of a task whose submitter names none.
    #[must_use]
    pub fn routing(mut self, routing: Routing) -> Self {
        self.routing = routing;
        self
    }

    /// Looks up the tier of an owner, if neither submitter nor token names one: in a table of the
    /// application, or from another service. Every submit asks for it, over HTTP, too. An answer is
    /// cached for half a minute. After an error, or two seconds without an answer, the cached tier
    /// counts.
    ///
    /// ```no_run
    /// # async fn look_up(owner: &str) -> std::io::Result<Option<String>> { Ok(None) }
    /// # async fn example() -> Result<(), longhaul::StoreError> {
    /// let builder = longhaul::Longhaul::open("sqlite://tasks.db").await?;
    /// let builder = builder.tier_of(|owner| async move { look_up(&owner).await });
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn tier_of<F, Fut, E>(mut self, look_up: F) -> Self
    where
        F: Fn(String) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Option<String>, E>> + Send + 'static,
        E: std::fmt::Display + 'static,
    {
        self.tiers = Some(tier_source(look_up));
        self
    }

    /// The rate limit of a provider (`openai`) or of a model (`openai/gpt-4`), for handlers that
    /// call [`Job::permit`]. A call of a model also counts in its provider's limit.
    #[must_use]
    pub fn limit(mut self, key: &str, limit: Limit) -> Self {
        self.limits = self.limits.limit(key, limit);
        self
    }

    /// Sets all rate limits, with the default for keys that have none.
    #[must_use]
    pub fn limits(mut self, limits: LimitRules) -> Self {
        self.limits = limits;
        self
    }
}
