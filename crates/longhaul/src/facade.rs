//! Longhaul as a program holds it.

use std::sync::Arc;

use longhaul_domain::{
    Status, StoreError, Task as Record, TaskId,
    contract::{
        Store,
        event_bus::{EventStream, Subscription},
        store::{Access, RetryScope},
    },
};
use longhaul_engine::Engine;
use longhaul_store::SqlStore;
use longhaul_worker::{Handle, Names, Services, Submission, Task, TypeInfo, Worker};

use crate::CallersTransaction;

/// A store, the types that this process knows, and the worker that runs them. [`Longhaul::open`] starts one.
#[derive(Debug)]
pub struct Longhaul {
    pub(crate) services: Arc<Services>,
    sql: Option<SqlStore>,
    worker: Option<Worker>,
    /// Whether the store is another's to close.
    is_client: bool,
    #[cfg(feature = "server")]
    pub(crate) mounts: Vec<longhaul_server::Mount>,
}

impl Longhaul {
    pub(crate) const fn new(services: Arc<Services>, sql: Option<SqlStore>) -> Self {
        Self {
            services,
            sql,
            worker: None,
            is_client: false,
            #[cfg(feature = "server")]
            mounts: Vec::new(),
        }
    }

    /// Another hand on the same Longhaul, to keep where requests are answered: it submits, looks and changes. To stop it
    /// does nothing to the one that it is from.
    #[must_use]
    pub fn client(&self) -> Self {
        Self { is_client: true, ..Self::new(Arc::clone(&self.services), self.sql.clone()) }
    }

    pub(crate) fn with_worker(mut self, worker: Worker) -> Self {
        self.worker = Some(worker);
        self
    }

    /// A task to be submitted: `longhaul.submit::<Page>(page).owner("u-1").priority(7).await?`.
    pub fn submit<T: Task>(&self, params: T::Params) -> Submission<T> {
        Submission::new(&self.services, &params)
    }

    /// Submits many, in order, all or none.
    pub async fn submit_all<T: Task>(
        &self,
        submissions: impl IntoIterator<Item = Submission<T>>,
    ) -> Result<Vec<Handle<T>>, StoreError> {
        let mut submissions: Vec<Submission<T>> = submissions.into_iter().collect();
        for submission in &mut submissions {
            submission.take_tier_of_owner().await;
        }
        let mut names = Names::of::<T>();
        let tasks = submissions.into_iter().map(|submission| submission.into_task_of_batch(&mut names));
        let tasks = tasks.collect::<Result<Vec<_>, _>>()?;
        let submitted = self.services.submit_many(tasks).await?;
        Ok(submitted.into_iter().map(|made| self.handle(made.task_id)).collect())
    }

    /// Submits within a transaction that the caller has open on the same database: task and business data commit or
    /// vanish together. Workers notice it at their next look, or at once after [`Self::wake`]. Nobody here learns of the
    /// commit, so `on_queued` is not called.
    pub async fn submit_in<T: Task>(
        &self,
        transaction: &mut impl CallersTransaction,
        mut submission: Submission<T>,
    ) -> Result<Handle<T>, StoreError> {
        submission.take_tier_of_owner().await;
        let task = submission.into_new_task()?;
        let no_database = || StoreError::Internal("this store has no transactions to join".to_owned());
        let submitted = transaction.submit(self.sql.as_ref().ok_or_else(no_database)?, task).await?;
        Ok(self.handle(submitted.task_id))
    }

    /// Has the workers of this process look for work now.
    pub fn wake(&self) {
        self.engine().wake();
    }

    /// A handle to a task that was submitted elsewhere or earlier.
    pub fn handle<T: Task>(&self, id: TaskId) -> Handle<T> {
        Handle::new(Arc::clone(&self.services), id)
    }

    /// The record of a task.
    pub async fn task(&self, id: TaskId) -> Result<Record, StoreError> {
        self.store().get_task(&Access::All, id).await
    }

    /// Cancels a task and all below it; one that has ended is left alone. Types that are not cancellable are refused
    /// while they run.
    pub async fn cancel(&self, id: TaskId) -> Result<Status, StoreError> {
        self.services.cancel(&Access::All, id).await
    }

    /// Replays a task that failed, or the failed children of one that ended.
    pub async fn retry(&self, id: TaskId, scope: RetryScope) -> Result<(), StoreError> {
        self.engine().retry(&Access::All, id, scope).await
    }

    /// News of tasks from now on. A slow listener loses the oldest and is told how many.
    pub fn events(&self, subscription: Subscription) -> Box<dyn EventStream> {
        self.engine().bus.subscribe(subscription)
    }

    /// The registered types, with their settings and schemas.
    pub fn types(&self) -> impl Iterator<Item = &TypeInfo> {
        self.services.registry.types()
    }

    /// Everything that the store can be asked, for what has no word here.
    pub fn store(&self) -> &dyn Store {
        &*self.engine().store
    }

    /// Commands that also tell listeners and wake workers.
    pub fn engine(&self) -> &Engine {
        &self.services.engine
    }

    /// What handlers of this process share.
    pub fn services(&self) -> &Arc<Services> {
        &self.services
    }

    /// Takes no more work, so that a load balancer turns elsewhere before [`Self::stop`] waits for what runs.
    pub fn begin_drain(&self) {
        if let Some(worker) = &self.worker {
            worker.begin_drain();
        }
    }

    /// The metrics of this process and of its store, as Prometheus reads them.
    pub async fn metrics(&self) -> Result<String, std::fmt::Error> {
        self.engine().scrape(longhaul_engine::metrics::book::Format::OpenMetrics).await
    }

    /// Drains the worker: what runs may finish, the rest is handed back without a charge; then closes the store.
    pub async fn stop(self) {
        if let Some(worker) = self.worker {
            worker.stop().await;
        }
        // What the last reports had to say is said before anybody hangs up.
        if let Some(broker) = self.services.engine.broker.as_ref().filter(|_| !self.is_client) {
            broker.close().await;
        }
        if let Some(store) = self.sql.filter(|_| !self.is_client) {
            store.close().await;
        }
    }
}
