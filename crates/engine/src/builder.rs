//! The builder of an engine.

use std::sync::{Arc, Weak};

use longhaul_domain::{
    Clock,
    contract::{Broker, EventBus, Notifier, ProgressCache, Store},
};
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    Catalog, Engine,
    dependency::Dependency,
    direct_dispatch::DirectDispatch,
    fair_order::FairOrder,
    local_node::LocalNode,
    metrics::Metrics,
    progress::{CacheWriter, LiveTasks},
    signals::SignalReceivers,
    store_health::StoreHealth,
    store_time::StoreTime,
    tiers::{TierSource, Tiers},
    wakeups::Wakeups,
};

/// Puts an [`Engine`] together: what each engine has, and what a fleet adds.
#[derive(Debug)]
pub struct EngineBuilder {
    store: Arc<dyn Store>,
    bus: Arc<dyn EventBus>,
    notifier: Arc<dyn Notifier>,
    broker: Option<Arc<dyn Broker>>,
    progress_cache: Option<Arc<dyn ProgressCache>>,
    dependencies: Vec<Arc<dyn Dependency>>,
    tier_source: Option<Arc<dyn TierSource>>,
    orders_fairly: bool,
    catalog: Catalog,
    metrics: Option<Arc<Metrics>>,
    store_clock: Option<Arc<dyn Clock>>,
    local_node: Option<Weak<dyn LocalNode>>,
}

impl EngineBuilder {
    /// With a broker, the notifier serves this process alone: other processes get hints over the
    /// broker.
    pub fn new(store: Arc<dyn Store>, bus: Arc<dyn EventBus>, notifier: Arc<dyn Notifier>) -> Self {
        Self {
            store,
            bus,
            notifier,
            broker: None,
            progress_cache: None,
            dependencies: Vec::new(),
            tier_source: None,
            orders_fairly: false,
            catalog: Catalog::default(),
            metrics: None,
            store_clock: None,
            local_node: None,
        }
    }

    /// Sends hints and signals between processes over this broker, if there is one.
    #[must_use]
    pub fn broker(mut self, broker: Option<Arc<dyn Broker>>) -> Self {
        self.broker = broker;
        self
    }

    /// Reads the progress of tasks that run elsewhere from this cache. Without one, the newest
    /// progress is known only for tasks of this process.
    #[must_use]
    pub fn progress_cache(mut self, cache: Option<Arc<dyn ProgressCache>>) -> Self {
        self.progress_cache = cache;
        self
    }

    /// Names what this process can do without for a while.
    #[must_use]
    pub fn dependencies(mut self, dependencies: Vec<Arc<dyn Dependency>>) -> Self {
        self.dependencies = dependencies;
        self
    }

    /// Looks up the tiers of owners in this source, if there is one.
    #[must_use]
    pub fn tier_source(mut self, source: Option<Arc<dyn TierSource>>) -> Self {
        self.tier_source = source;
        self
    }

    /// Orders new tasks fairly between the owners of each queue.
    #[must_use]
    pub fn fair_order(mut self, is_fair: bool) -> Self {
        self.orders_fairly = is_fair;
        self
    }

    /// The task types that this process knows. Metrics count all others as `other`.
    #[must_use]
    pub fn catalog(mut self, catalog: Catalog) -> Self {
        self.catalog = catalog;
        self
    }

    /// Measures with these metrics, which the store may use, too.
    #[must_use]
    pub fn metrics(mut self, metrics: Arc<Metrics>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// The store's clock, if it is that of this process. Metrics show how far it is ahead.
    #[must_use]
    pub fn store_clock(mut self, clock: Option<Arc<dyn Clock>>) -> Self {
        self.store_clock = clock;
        self
    }

    /// The node that this process will have. The node builds its engine while it is built itself:
    /// each holds the other, and neither can change later or be forgotten.
    #[must_use]
    pub fn local_node(mut self, node: Weak<dyn LocalNode>) -> Self {
        self.local_node = Some(node);
        self
    }

    /// Builds the engine. With a broker it starts to listen to signals, and with a shared progress
    /// cache it starts to write to it, so it must be called on a runtime.
    pub fn build(self) -> Arc<Engine> {
        let metrics = match self.metrics {
            Some(metrics) => metrics,
            None => Arc::new(Metrics::for_catalog(&self.catalog)),
        };

        let direct_dispatch = self
            .broker
            .as_ref()
            .map(|broker| DirectDispatch::new(Arc::clone(broker), Arc::clone(&metrics)));
        let cache_writer = match &self.progress_cache {
            Some(cache) if cache.is_shared() => Some(CacheWriter::start(Arc::clone(cache))),
            Some(_) | None => None,
        };
        let fair_order = self
            .orders_fairly
            .then(|| FairOrder::new(Arc::clone(&self.store)));

        let wakeups = Arc::new(Wakeups::default());
        let signal_listener = match (&self.broker, &direct_dispatch) {
            (Some(broker), Some(dispatch)) => {
                let receivers = SignalReceivers {
                    notifier: Arc::clone(&self.notifier),
                    direct_dispatch: Arc::clone(dispatch),
                    wakeups: Arc::clone(&wakeups),
                };
                // The engine holds the handle: an engine that is dropped ends its listener.
                let listening = tokio::spawn(receivers.listen(broker.signals()));
                Some(AbortOnDropHandle::new(listening))
            }
            _ => None,
        };

        Arc::new(Engine {
            store: self.store,
            bus: self.bus,
            notifier: self.notifier,
            broker: self.broker,
            catalog: self.catalog,
            progress_cache: self.progress_cache,
            metrics,
            store_time: StoreTime::default(),
            store_clock: self.store_clock,
            wakeups,
            cache_writer,
            direct_dispatch,
            _signal_listener: signal_listener,
            recent_ends: Mutex::default(),
            live: LiveTasks::default(),
            fair_order,
            tiers: self.tier_source.map(Tiers::new),
            dependencies: self.dependencies,
            store_health: StoreHealth::default(),
            local_node: self.local_node,
        })
    }
}
