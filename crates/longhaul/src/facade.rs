//! A program's handle to Longhaul.

use std::sync::Arc;

use longhaul_domain::{
    NewTask, Status, StoreError, TaskId, TaskRecord,
    contract::{
        RateLimiter,
        event_bus::{EventStream, Subscription},
        store::{Access, RetryScope, Submitted},
    },
};
use longhaul_engine::{Engine, Submissions as _};
use longhaul_node::{Node, RunningNode, maintenance::job::MaintenanceJob};
use longhaul_sdk::{Client, Handle, Kind, Named, Submission, Task, TypeInfo};
use longhaul_store::SqlStore;
use serde::{Serialize, de::DeserializeOwned};

/// A store, the task types of this process, and the node that runs them. Start with
/// [`Longhaul::open`].
///
/// [`Self::engine`] hands out the reads of the store as narrow traits:
///
/// ```no_run
/// use longhaul::{Access, Longhaul, StoreError, TaskId, TaskRecord};
///
/// async fn read(longhaul: &Longhaul, id: TaskId) -> Result<TaskRecord, StoreError> {
///     longhaul.engine().reads().get_task(&Access::All, id).await
/// }
/// ```
///
/// A change of a task goes through a command, which publishes it. The operations of the store that
/// change a task cannot be reached, neither through a store of its own
///
/// ```compile_fail,E0599
/// use longhaul::{Access, Longhaul, TaskId};
///
/// async fn change(longhaul: &Longhaul, id: TaskId) {
///     let _ = longhaul.store().cancel_task(&Access::All, id).await;
/// }
/// ```
///
/// nor through the engine's field
///
/// ```compile_fail,E0616
/// use longhaul::{Access, Longhaul, TaskId};
///
/// async fn change(longhaul: &Longhaul, id: TaskId) {
///     let _ = longhaul.engine().store.cancel_task(&Access::All, id).await;
/// }
/// ```
///
/// nor through the narrow traits:
///
/// ```compile_fail,E0599
/// use longhaul::{Access, Longhaul, TaskId};
///
/// async fn change(longhaul: &Longhaul, id: TaskId) {
///     let _ = longhaul.engine().reads().cancel_task(&Access::All, id).await;
/// }
/// ```
#[derive(Debug)]
pub struct Longhaul {
    pub(crate) client: Arc<Client>,
    pub(crate) limiter: Arc<dyn RateLimiter>,
    pub(crate) sql: Option<SqlStore>,
    node: Option<RunningNode>,
    /// Whether another `Longhaul` stops the node and closes the store.
    is_client: bool,
    #[cfg(feature = "server")]
    pub(crate) mounts: Vec<longhaul_server::Mount>,
}

impl Longhaul {
    pub(crate) fn new(
        client: Arc<Client>,
        limiter: Arc<dyn RateLimiter>,
        sql: Option<SqlStore>,
    ) -> Self {
        Self {
            client,
            limiter,
            sql,
            node: None,
            is_client: false,
            #[cfg(feature = "server")]
            mounts: Vec::new(),
        }
    }

    /// A second handle on the same store and node, for example for a router's state. It does
    /// everything but run tasks. Stopping it does not affect the original.
    #[must_use]
    pub fn client(&self) -> Self {
        Self {
            is_client: true,
            ..Self::new(
                Arc::clone(&self.client),
                Arc::clone(&self.limiter),
                self.sql.clone(),
            )
        }
    }

    /// Runs the node until [`Self::stop`].
    pub(crate) async fn run(
        mut self,
        node: Arc<Node>,
        maintenance: Vec<Arc<dyn MaintenanceJob>>,
    ) -> Result<Self, StoreError> {
        self.node = Some(node.start(maintenance).await?);
        Ok(self)
    }

    /// Prepares a task: `longhaul.submit::<Page>(page).owner("u-1").priority(7).await?`. The
    /// registered type sets queue, attempts and timeout. A process that only submits registers the
    /// type too and starts with [`Builder::without_worker`](crate::Builder::without_worker).
    pub fn submit<T: Task>(&self, params: T::Params) -> Submission<T> {
        Submission::new(&self.client, &params)
    }

    /// The same for a type known by name: a plain function, or code in another program.
    ///
    /// ```no_run
    /// # use longhaul::{AnyError, Longhaul};
    /// # async fn example(longhaul: &Longhaul) -> Result<(), AnyError> {
    /// let handle = longhaul.submit_named::<_, String>("shout", "quiet").owner("u-1").await?;
    /// assert_eq!(handle.result().await?, "QUIET");
    /// # Ok(())
    /// # }
    /// ```
    pub fn submit_named<P, R>(&self, task_type: &str, params: P) -> Submission<Named<P, R>>
    where
        P: Serialize + 'static,
        R: DeserializeOwned + 'static,
    {
        Submission::named(&self.client, task_type, &params)
    }

    /// Submits many tasks, in order, all or none.
    pub async fn submit_all<K: Kind>(
        &self,
        submissions: impl IntoIterator<Item = Submission<K>>,
    ) -> Result<Vec<Handle<K>>, StoreError> {
        let submitted = self
            .client
            .submit_many(new_tasks(submissions).await?)
            .await?;
        Ok(self.handles(&submitted))
    }

    pub(crate) fn handles<K: Kind>(&self, submitted: &[Submitted]) -> Vec<Handle<K>> {
        submitted
            .iter()
            .map(|made| self.handle(made.task_id))
            .collect()
    }

    /// Makes the workers of this process look for work now.
    pub fn wake(&self) {
        self.engine().wake();
    }

    /// A handle to a task that was submitted elsewhere or earlier.
    pub fn handle<K: Kind>(&self, id: TaskId) -> Handle<K> {
        Handle::new(Arc::clone(&self.client), id)
    }

    /// The record of a task.
    pub async fn task(&self, id: TaskId) -> Result<TaskRecord, StoreError> {
        self.engine().reads().get_task(&Access::All, id).await
    }

    /// Cancels a task and its descendants. An ended task is left alone. A running task of a type
    /// that is not cancellable is refused.
    pub async fn cancel(&self, id: TaskId) -> Result<Status, StoreError> {
        self.client.cancel(&Access::All, id).await
    }

    /// Replays a failed task, or the failed children of an ended one.
    pub async fn retry(&self, id: TaskId, scope: RetryScope) -> Result<(), StoreError> {
        self.engine().retry(&Access::All, id, scope).await
    }

    /// Task events from now on. A slow listener loses the oldest and gets their number.
    pub fn events(&self, subscription: Subscription) -> Box<dyn EventStream> {
        self.engine().subscribe(subscription)
    }

    /// The registered types, with their settings and schemas.
    pub fn types(&self) -> impl Iterator<Item = &TypeInfo> {
        self.client.registry.types()
    }

    /// Commands, and what else the store can be asked for: `engine().reads()`, `queues()`,
    /// `leases()`, `maintenance()`, `outbox()` and `tokens()`. A change of a task goes through a
    /// command, which notifies listeners and wakes workers.
    pub fn engine(&self) -> &Engine {
        &self.client.engine
    }

    /// State shared by submissions and handles of this process.
    pub fn sdk_client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Stops claiming, so that a load balancer turns elsewhere before [`Self::stop`] waits for
    /// running tasks.
    pub fn begin_drain(&self) {
        if let Some(node) = &self.node {
            node.begin_drain();
        }
    }

    /// The metrics of this process and its store, in Prometheus format.
    pub async fn metrics(&self) -> Result<String, std::fmt::Error> {
        self.engine()
            .scrape(longhaul_engine::metrics::registry::Format::OpenMetrics)
            .await
    }

    /// Drains the worker, then closes the store. Running tasks may finish; the rest are handed back
    /// without a charge. Running hooks get some seconds to finish. A blocking handler cannot be
    /// stopped: its task is handed back while its thread continues. A dropped runtime waits for
    /// that thread, unless `shutdown_background` ends it.
    pub async fn stop(self) {
        match self.node {
            Some(node) => node.stop().await,
            None if self.is_client => {}
            None => self.client.hooks.finish().await,
        }

        // The broker closes after the node, so that the last events are sent.
        if self.is_client {
            return;
        }
        if let Some(broker) = self.client.engine.broker() {
            broker.close().await;
        }
        if let Some(store) = self.sql {
            store.close().await;
        }
    }
}

pub(crate) async fn new_tasks<K: Kind>(
    submissions: impl IntoIterator<Item = Submission<K>>,
) -> Result<Vec<NewTask>, StoreError> {
    let mut submissions: Vec<Submission<K>> = submissions.into_iter().collect();
    for submission in &mut submissions {
        submission.take_tier_of_owner().await;
    }
    Ok(Submission::into_new_tasks(submissions)?)
}
