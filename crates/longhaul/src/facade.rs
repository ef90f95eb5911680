//! Longhaul as a program holds it.

use std::sync::Arc;

use longhaul_domain::{
    NewTask, Status, StoreError, Task as Record, TaskId,
    contract::{
        Store,
        event_bus::{EventStream, Subscription},
        store::{Access, RetryScope, Submitted},
    },
};
use longhaul_engine::Engine;
use longhaul_store::SqlStore;
use longhaul_worker::{Handle, Kind, Named, Services, Submission, Task, TypeInfo, Worker};
use serde::{Serialize, de::DeserializeOwned};

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
        Self {
            is_client: true,
            ..Self::new(Arc::clone(&self.services), self.sql.clone())
        }
    }

    pub(crate) fn with_worker(mut self, worker: Worker) -> Self {
        self.worker = Some(worker);
        self
    }

    /// A task to be submitted: `longhaul.submit::<Page>(page).owner("u-1").priority(7).await?`. What the type says in its
    /// settings (queue, attempts, timeout) is known where it is registered; a process that only submits registers it and starts
    /// with [`Builder::without_worker`](crate::Builder::without_worker).
    pub fn submit<T: Task>(&self, params: T::Params) -> Submission<T> {
        Submission::new(&self.services, &params)
    }

    /// The same for a type that is known by its name: a plain function, or one whose code is in another program.
    ///
    /// ```no_run
    /// # async fn example(longhaul: &longhaul::Longhaul) -> Result<(), Box<dyn std::error::Error>> {
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
        Submission::named(&self.services, task_type, &params)
    }

    /// Submits many, in order, all or none.
    pub async fn submit_all<K: Kind>(
        &self,
        submissions: impl IntoIterator<Item = Submission<K>>,
    ) -> Result<Vec<Handle<K>>, StoreError> {
        let submitted = self
            .services
            .submit_many(new_tasks(submissions).await?)
            .await?;
        Ok(self.handles(&submitted))
    }

    /// Submits within a transaction that the caller has open on the same database: task and business data commit or
    /// vanish together. Workers notice it at their next look, or at once after [`Self::wake`]. Nobody here learns of the
    /// commit, so `on_queued` is not called. On SQLite begin the transaction with `BEGIN IMMEDIATE` if it reads first.
    pub async fn submit_in<K: Kind>(
        &self,
        transaction: &mut impl CallersTransaction,
        submission: Submission<K>,
    ) -> Result<Handle<K>, StoreError> {
        let mut handles = self.submit_all_in(transaction, [submission]).await?;
        handles
            .pop()
            .ok_or_else(|| StoreError::Internal("a submit answered with no task".to_owned()))
    }

    /// The same for many, in order.
    pub async fn submit_all_in<K: Kind>(
        &self,
        transaction: &mut impl CallersTransaction,
        submissions: impl IntoIterator<Item = Submission<K>>,
    ) -> Result<Vec<Handle<K>>, StoreError> {
        let tasks = new_tasks(submissions).await?;
        let no_database =
            || StoreError::Internal("this store has no transactions to join".to_owned());
        let submitted = transaction
            .submit(self.sql.as_ref().ok_or_else(no_database)?, tasks)
            .await?;
        Ok(self.handles(&submitted))
    }

    fn handles<K: Kind>(&self, submitted: &[Submitted]) -> Vec<Handle<K>> {
        submitted
            .iter()
            .map(|made| self.handle(made.task_id))
            .collect()
    }

    /// Has the workers of this process look for work now.
    pub fn wake(&self) {
        self.engine().wake();
    }

    /// A handle to a task that was submitted elsewhere or earlier.
    pub fn handle<K: Kind>(&self, id: TaskId) -> Handle<K> {
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
        self.engine()
            .scrape(longhaul_engine::metrics::book::Format::OpenMetrics)
            .await
    }

    /// Drains the worker: what runs may finish, the rest is handed back without a charge; then closes the store. Hooks that
    /// still run are waited for, for some seconds. A blocking handler cannot be stopped: its task is handed back, and its thread
    /// goes on; a runtime that is dropped waits for it, unless it is ended by `shutdown_background`.
    pub async fn stop(self) {
        match self.worker {
            Some(worker) => worker.stop().await,
            None if self.is_client => {}
            None => self.services.end_hooks().await,
        }
        // What the last reports had to say is said before anybody hangs up.
        if let Some(broker) = self
            .services
            .engine
            .broker
            .as_ref()
            .filter(|_| !self.is_client)
        {
            broker.close().await;
        }
        if let Some(store) = self.sql.filter(|_| !self.is_client) {
            store.close().await;
        }
    }
}

async fn new_tasks<K: Kind>(
    submissions: impl IntoIterator<Item = Submission<K>>,
) -> Result<Vec<NewTask>, StoreError> {
    let mut submissions: Vec<Submission<K>> = submissions.into_iter().collect();
    for submission in &mut submissions {
        submission.take_tier_of_owner().await;
    }
    Ok(Submission::into_new_tasks(submissions)?)
}
