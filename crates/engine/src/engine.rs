//! The engine of one process: what it shares between commands, queries and background work.

use std::sync::{Arc, Weak};

use longhaul_domain::{
    Clock, NewTask,
    contract::{
        Broker, EventBus, Notifier, ProgressCache, Store,
        broker::BrokerState,
        event_bus::{EventStream, Subscription},
        notifier::HintedTask,
        store::{Leases, Maintenance, Outbox, Queues, TaskReads, Tokens},
    },
};
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    Catalog,
    builder::EngineBuilder,
    dependency::Dependency,
    direct_dispatch::DirectDispatch,
    events::RecentEnds,
    fair_order::FairOrder,
    local_node::LocalNode,
    metrics::Metrics,
    progress::{CacheWriter, LiveTasks},
    store_health::StoreHealth,
    store_time::StoreTime,
    tiers::Tiers,
    wakeups::Wakeups,
};

/// What commands, executors and servers of one process share. It is made once, by an
/// [`EngineBuilder`], and does not change afterwards.
///
/// Reads of the store are handed out as narrow traits:
///
/// ```
/// use longhaul_domain::{StoreError, TaskId, TaskRecord, contract::store::Access};
/// use longhaul_engine::Engine;
///
/// async fn read(engine: &Engine, id: TaskId) -> Result<TaskRecord, StoreError> {
///     engine.reads().get_task(&Access::All, id).await
/// }
/// ```
///
/// A change of a task goes through a command, which publishes it. The operations of the store that
/// change a task cannot be reached, neither through its field
///
/// ```compile_fail,E0616
/// use longhaul_domain::{TaskId, contract::store::Access};
/// use longhaul_engine::Engine;
///
/// async fn change(engine: &Engine, id: TaskId) {
///     let _ = engine.store.cancel_task(&Access::All, id).await;
/// }
/// ```
///
/// nor through the narrow traits:
///
/// ```compile_fail,E0599
/// use longhaul_domain::{TaskId, contract::store::{Access, TaskCommands}};
/// use longhaul_engine::Engine;
///
/// async fn change(engine: &Engine, id: TaskId) {
///     let _ = engine.reads().cancel_task(&Access::All, id).await;
/// }
/// ```
#[derive(Debug)]
pub struct Engine {
    /// Private to the engine, so that each change of a task goes through a command.
    pub(crate) store: Arc<dyn Store>,
    pub(crate) bus: Arc<dyn EventBus>,
    pub(crate) notifier: Arc<dyn Notifier>,
    /// Absent in a process alone.
    pub(crate) broker: Option<Arc<dyn Broker>>,
    pub(crate) catalog: Catalog,
    /// The progress of tasks that run elsewhere. A shared cache also has that of tasks that run
    /// here.
    pub(crate) progress_cache: Option<Arc<dyn ProgressCache>>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) store_time: StoreTime,
    /// The store's clock, if it is that of this process.
    pub(crate) store_clock: Option<Arc<dyn Clock>>,
    pub(crate) wakeups: Arc<Wakeups>,
    /// Writes local progress into a shared progress cache.
    pub(crate) cache_writer: Option<CacheWriter>,
    /// Publishes hints for tasks that this process makes claimable.
    pub(crate) direct_dispatch: Option<Arc<DirectDispatch>>,
    /// Receives signals of other nodes for as long as the engine lives.
    pub(crate) _signal_listener: Option<AbortOnDropHandle<()>>,
    /// Locked for one look and insert, so that two tasks that publish one end count it once.
    pub(crate) recent_ends: Mutex<RecentEnds>,
    pub(crate) live: LiveTasks,
    /// Orders new tasks fairly between owners. Absent: first come, first served.
    pub(crate) fair_order: Option<Arc<FairOrder>>,
    pub(crate) tiers: Option<Tiers>,
    /// What this process can do without for a while.
    pub(crate) dependencies: Vec<Arc<dyn Dependency>>,
    pub(crate) store_health: StoreHealth,
    /// Absent in a process without a node. Weak, because the node holds the engine.
    pub(crate) local_node: Option<Weak<dyn LocalNode>>,
}

impl Engine {
    /// An engine without a broker. [`EngineBuilder`] makes others.
    pub fn new(
        store: Arc<dyn Store>,
        bus: Arc<dyn EventBus>,
        notifier: Arc<dyn Notifier>,
    ) -> Arc<Self> {
        EngineBuilder::new(store, bus, notifier).build()
    }

    /// The task types that this process knows.
    pub const fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Reads of tasks and what belongs to them.
    pub fn reads(&self) -> &dyn TaskReads {
        &*self.store
    }

    /// What waits in queues.
    pub fn queues(&self) -> &dyn Queues {
        &*self.store
    }

    /// Nodes, and the leases of the tasks that they run.
    pub fn leases(&self) -> &dyn Leases {
        &*self.store
    }

    /// What background work asks of the store.
    pub fn maintenance(&self) -> &dyn Maintenance {
        &*self.store
    }

    /// Messages that were committed with a change.
    pub fn outbox(&self) -> &dyn Outbox {
        &*self.store
    }

    /// Access tokens.
    pub fn tokens(&self) -> &dyn Tokens {
        &*self.store
    }

    /// Carries hints between processes, where there is a broker. Without one, or while it is down,
    /// nodes poll the store.
    pub const fn broker(&self) -> Option<&Arc<dyn Broker>> {
        self.broker.as_ref()
    }

    /// Whether hints travel over a broker now.
    pub fn is_broker_up(&self) -> bool {
        self.broker
            .as_ref()
            .is_some_and(|broker| broker.state() == BrokerState::Up)
    }

    /// Task events from now on. A slow listener loses the oldest and gets their number.
    pub fn subscribe(&self, subscription: Subscription) -> Box<dyn EventStream> {
        self.bus.subscribe(subscription)
    }

    /// Waits for a hint of the notifier. Returns the tasks that it names.
    pub async fn hinted(&self) -> Vec<HintedTask> {
        self.notifier.notified().await
    }

    /// What components of this process wake each other for.
    pub fn wakeups(&self) -> &Wakeups {
        &self.wakeups
    }

    /// The store's clock, as far as this process knows it.
    pub const fn store_time(&self) -> &StoreTime {
        &self.store_time
    }

    /// What this process measures.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Whether more tasks wait in this queue than the dispatcher publishes hints for. Nodes with a
    /// free slot then claim from the store.
    pub fn is_backlogged(&self, queue: &str) -> bool {
        self.direct_dispatch
            .as_ref()
            .is_some_and(|dispatch| dispatch.is_backlogged(queue))
    }

    /// The node of this process, if it has one that still runs.
    pub fn local_node(&self) -> Option<Arc<dyn LocalNode>> {
        self.local_node.as_ref().and_then(Weak::upgrade)
    }

    /// Whether the node of this process is shutting down or has shut down. A process without a
    /// node never drains.
    pub fn is_draining(&self) -> bool {
        match &self.local_node {
            Some(node) => node.upgrade().is_none_or(|node| node.is_draining()),
            None => false,
        }
    }

    /// The names of the dependencies that are down. The process works on without them.
    pub fn missing(&self) -> Vec<&'static str> {
        let down = |dependency: &&Arc<dyn Dependency>| !dependency.is_up();
        let missing = self.dependencies.iter().filter(down);
        missing.map(|dependency| dependency.name()).collect()
    }

    /// The owner's tier, if a tier source knows it.
    pub async fn tier_of(&self, owner: &str) -> Option<String> {
        self.tiers.as_ref()?.tier_of(owner).await
    }

    /// Gives tasks that are due at once their due time in the fair order.
    pub(crate) async fn order_fairly(&self, tasks: &mut [NewTask]) {
        if let Some(fair_order) = &self.fair_order {
            fair_order.assign(tasks).await;
        }
    }
}
