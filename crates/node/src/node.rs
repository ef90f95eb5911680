//! The node: what all loops of one process share.

use std::sync::{Arc, Weak};

use futures::future::BoxFuture;
use longhaul_domain::{
    NewTask, NodeId, QueueName, Serves, StoreError,
    contract::{
        RateLimiter,
        store::{ClaimRequest, Submitted},
    },
};
use longhaul_engine::{Engine, EngineBuilder, LocalNode};
use longhaul_sdk::{Client, EagerStart, random};
use parking_lot::{MutexGuard, RwLock};

use crate::{
    admission::Admission, attempts::Attempts, demand::Demand, eager_start, in_flight::InFlight,
    log_buffer::LogBuffer, progress_writer::ProgressWriter, settings::WorkerSettings,
    shutdown::Shutdown, slot_plan, slots::Room, wakeups::Wakeups,
};

/// A node that runs tasks of the types that its client knows. It is built once. [`Node::start`]
/// registers it and starts its loops.
#[derive(Debug)]
pub struct Node {
    pub(crate) client: Arc<Client>,
    pub(crate) limiter: Arc<dyn RateLimiter>,
    pub(crate) settings: WorkerSettings,
    /// Whether no other process has the store open.
    is_alone: bool,
    /// Changes when the node was declared dead and registers again.
    id: RwLock<NodeId>,
    pub(crate) admission: Admission,
    pub(crate) demand: Demand,
    pub(crate) wakeups: Wakeups,
    pub(crate) attempts: Attempts,
    pub(crate) progress: ProgressWriter,
    pub(crate) logs: LogBuffer,
    pub(crate) shutdown: Shutdown,
}

impl Node {
    /// A node that is not registered yet, with its engine and its client. What the client submits
    /// may start on it at once.
    ///
    /// The node builds the engine, because the engine reports its node and the node works with its
    /// engine: so both are complete from the start.
    ///
    /// With `is_alone` no other process may have the store open. The node then takes over at once
    /// what earlier processes left.
    pub fn new(
        engine: EngineBuilder,
        make_client: impl FnOnce(Arc<Engine>) -> Client,
        limiter: Arc<dyn RateLimiter>,
        settings: WorkerSettings,
        is_alone: bool,
    ) -> Arc<Self> {
        Arc::new_cyclic(|node: &Weak<Self>| {
            let local_node: Weak<dyn LocalNode> = Weak::<Self>::clone(node);
            let eager_start: Weak<dyn EagerStart> = Weak::<Self>::clone(node);

            let engine = engine.local_node(local_node).build();
            let client = make_client(engine).with_node(eager_start);
            Self::of_client(Arc::new(client), limiter, settings, is_alone)
        })
    }

    /// A node that neither its engine nor its client knows: what the client submits is claimed
    /// later.
    pub(crate) fn of_client(
        client: Arc<Client>,
        limiter: Arc<dyn RateLimiter>,
        settings: WorkerSettings,
        is_alone: bool,
    ) -> Self {
        let plan = slot_plan::slot_plan(&client, &settings);

        Self {
            client,
            limiter,
            settings,
            is_alone,
            id: RwLock::new(NodeId(random::id())),
            demand: Demand::default(),
            wakeups: Wakeups::new(plan.queues.len()),
            admission: Admission::new(plan),
            attempts: Attempts::default(),
            progress: ProgressWriter::default(),
            logs: LogBuffer::default(),
            shutdown: Shutdown::default(),
        }
    }

    /// The client whose submits may start on this node at once.
    pub fn client(&self) -> Arc<Client> {
        Arc::clone(&self.client)
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.client.engine
    }

    pub(crate) fn in_flight(&self) -> MutexGuard<'_, InFlight> {
        self.admission.in_flight()
    }

    /// Whether a slot is free for a task of this queue and type.
    pub(crate) fn room_for(&self, queue: &str, task_type: &str) -> Room {
        self.in_flight().slots().room_for(queue, task_type)
    }

    pub(crate) fn id(&self) -> NodeId {
        // A copy. A caller that uses it after a new registration is refused by the store.
        *self.id.read()
    }

    /// Registers the node for the first time.
    pub(crate) async fn join(&self) -> Result<(), StoreError> {
        self.register().await?;
        if self.is_alone {
            self.engine()
                .leases()
                .declare_others_dead(self.id())
                .await?;
        }
        Ok(())
    }

    /// Registers the node under a new boot id. Tasks of an earlier id are lost to it.
    pub(crate) async fn register(&self) -> Result<(), StoreError> {
        let id = NodeId(random::id());
        let serves = self.serves();
        let settings = &self.settings;

        // Otherwise a node that has claimed nothing yet would not know which hints of types that it
        // does not serve are young enough to be passed on.
        let now = self.engine().reads().now().await?;
        self.engine().store_time().note(now);

        self.engine()
            .leases()
            .register_node(id, &settings.name, &settings.host, Some(&serves))
            .await?;
        // Only now: until the store knows the new id, claims under it would be refused.
        *self.id.write() = id;

        Ok(())
    }

    fn serves(&self) -> Serves {
        let in_flight = self.in_flight();
        let slots = in_flight.slots();
        Serves {
            queues: slots.queues().map(ToString::to_string).collect(),
            task_types: slots.task_types().map(str::to_owned).collect(),
            slots: self.settings.slots,
        }
    }

    /// A claim of this node.
    pub(crate) fn claim_request(
        &self,
        queues: Vec<QueueName>,
        task_types: Vec<String>,
        limit: usize,
    ) -> ClaimRequest {
        ClaimRequest {
            node_id: self.id(),
            host: self.settings.host.clone(),
            queues,
            task_types,
            limit,
        }
    }
}

impl LocalNode for Node {
    fn id(&self) -> NodeId {
        Self::id(self)
    }

    fn slots(&self) -> (usize, usize) {
        let in_flight = self.in_flight();
        (in_flight.slots().occupied(), in_flight.slots().total())
    }

    fn has_room(&self, queue: &str, task_type: &str) -> Option<bool> {
        match self.room_for(queue, task_type) {
            Room::Free => Some(true),
            Room::Full => Some(false),
            Room::NotServed => None,
        }
    }

    fn is_draining(&self) -> bool {
        self.shutdown.is_draining()
    }
}

impl EagerStart for Node {
    fn warn_if_not_served(&self, task: &NewTask) {
        let is_served = self.room_for(&task.queue, &task.task_type) != Room::NotServed;
        if self.is_alone && !is_served {
            let task_type = &task.task_type;
            let queue = &task.queue;
            tracing::warn!(
                %task_type,
                %queue,
                "this node does not run the submitted task: its type is not registered or its \
                 queue is not served; it will wait"
            );
        }
    }

    fn submit_and_start(
        self: Arc<Self>,
        task: NewTask,
    ) -> Result<BoxFuture<'static, Result<Submitted, StoreError>>, Box<NewTask>> {
        eager_start::submit_and_start(&self, task)
    }
}
