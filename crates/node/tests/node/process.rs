//! A process on a remote store that is put together here, with a notifier and a broker of the
//! test's own. The facade makes neither.

use std::sync::Arc;

use longhaul::{
    Access, Handle, Kind, MaintenanceSettings, Status, StoreError, Submission, Task, TaskId,
    TaskRecord, WorkerSettings,
};
use longhaul_domain::contract::{Broker, Notifier};
use longhaul_engine::{
    Engine, EngineBuilder, Submissions as _, metrics::registry::Format, routing::Routing,
};
use longhaul_node::{Node, RunningNode, maintenance};
use longhaul_sdk::{Client, Registry};
use longhaul_testkit::reference::MemoryStore;
use longhaul_transport::local::{MemoryEventBus, MemoryRateLimiter};

use crate::remote_store::RemoteStore;

pub(crate) struct Process {
    client: Arc<Client>,
    node: Option<RunningNode>,
}

/// What a process is made of.
pub(crate) struct Assembly {
    engine: EngineBuilder,
    make_client: Box<dyn FnOnce(Arc<Engine>) -> Client>,
    limiter: MemoryRateLimiter,
}

impl Assembly {
    pub(crate) fn new(
        remote: &RemoteStore,
        broker: Option<Arc<dyn Broker>>,
        notifier: Arc<dyn Notifier>,
        types: impl FnOnce(&mut Registry),
    ) -> Self {
        let mut registry = Registry::default();
        types(&mut registry);

        let store: Arc<MemoryStore> = Arc::clone(&remote.store);
        let engine = EngineBuilder::new(store, Arc::new(MemoryEventBus::new(1_000)), notifier)
            .broker(broker)
            .catalog(registry.catalog(&Routing::default()));

        // Files and streams are as the facade makes them.
        let facade = remote.builder().without_worker().unwrap();
        let files = Arc::clone(&facade.sdk_client().files);
        let streams = Arc::clone(&facade.sdk_client().streams);
        let make_client =
            move |engine| Client::new(engine, streams, files, Routing::default(), registry);

        let clock = Arc::new(remote.clock.clone());
        Self {
            engine,
            make_client: Box::new(make_client),
            limiter: MemoryRateLimiter::new(clock, Default::default()).unwrap(),
        }
    }

    /// A process that only submits and reads.
    pub(crate) fn without_node(self) -> Process {
        Process {
            client: Arc::new((self.make_client)(self.engine.build())),
            node: None,
        }
    }

    /// A process with a running node.
    pub(crate) async fn with_node(self, settings: WorkerSettings) -> Process {
        let limiter = Arc::new(self.limiter);
        let node = Node::new(self.engine, self.make_client, limiter, settings, false);
        let client = node.client();

        let jobs = maintenance::all(&MaintenanceSettings::default(), None, &client.files.store);
        let node = Some(node.start(jobs).await.unwrap());
        Process { client, node }
    }
}

impl Process {
    pub(crate) fn engine(&self) -> &Engine {
        &self.client.engine
    }

    pub(crate) fn submit<T: Task>(&self, params: T::Params) -> Submission<T> {
        Submission::new(&self.client, &params)
    }

    pub(crate) async fn submit_all<K: Kind>(
        &self,
        submissions: impl IntoIterator<Item = Submission<K>>,
    ) -> Result<Vec<Handle<K>>, StoreError> {
        let tasks = Submission::into_new_tasks(submissions)?;
        let submitted = self.client.submit_many(tasks).await?;

        let handle = |id| Handle::new(Arc::clone(&self.client), id);
        Ok(submitted.iter().map(|made| handle(made.task_id)).collect())
    }

    pub(crate) async fn task(&self, id: TaskId) -> Result<TaskRecord, StoreError> {
        self.engine().reads().get_task(&Access::All, id).await
    }

    pub(crate) async fn cancel(&self, id: TaskId) -> Result<Status, StoreError> {
        self.client.cancel(&Access::All, id).await
    }

    pub(crate) async fn metrics(&self) -> String {
        self.engine().scrape(Format::OpenMetrics).await.unwrap()
    }

    pub(crate) fn begin_drain(&self) {
        if let Some(node) = &self.node {
            node.begin_drain();
        }
    }

    /// Stops the node. The broker stays open: other processes of the test use it, too.
    pub(crate) async fn stop(self) {
        match self.node {
            Some(node) => node.stop().await,
            None => self.client.hooks.finish().await,
        }
    }
}
