//! From a URL to a running Longhaul.

use std::path::PathBuf;
use std::sync::Arc;

use longhaul_domain::{
    Clock, Invalid, StoreError,
    contract::{
        ArtifactStore, Store,
        rate_limiter::{Limit, LimitRules},
        store::TaskReads,
    },
};
use longhaul_engine::{
    EngineBuilder, Files, files::FileLife, files::UrlSigner, metrics::Metrics, routing::Routing,
    tiers::TierSource,
};
use longhaul_node::{
    WorkerSettings,
    maintenance::{self, MaintenanceSettings},
};
use longhaul_sdk::{
    AnyError, Client, Handler, Job, Outcome, Question, Registry, Task, TaskInfo, TypeSettings,
};
use longhaul_store::{SqlStore, StoreOptions, SystemClock};
use longhaul_transport::local::{
    LocalNotifier, MemoryStreamLog, PacedRateLimiter, StreamBounds, signing_key,
};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

use crate::{Longhaul, artifacts::LazyArtifacts, fleet::FleetSettings, tier_source::tier_source};

/// The default folder for files if the store is a server.
const ARTIFACTS: &str = "longhaul-artifacts";

/// The configuration of a Longhaul. [`Longhaul::open`] makes one.
#[derive(Debug)]
pub struct Builder {
    pub(crate) store: Arc<dyn Store>,
    sql: Option<SqlStore>,
    clock: Arc<dyn Clock>,
    registry: Registry,
    /// The first configuration error, reported at the start.
    problem: Option<Invalid>,
    pub(crate) worker: WorkerSettings,
    pub(crate) maintenance: MaintenanceSettings,
    pub(crate) fleet: FleetSettings,
    routing: Routing,
    tiers: Option<Arc<dyn TierSource>>,
    limits: LimitRules,
    pub(crate) artifacts: Arc<dyn ArtifactStore>,
    #[cfg(feature = "server")]
    pub(crate) applications: Vec<crate::mounting::Application>,
    file_life: FileLife,
    /// The file of the key that signs file URLs, unless a key was given.
    key_file: PathBuf,
    artifact_key: Option<[u8; 32]>,
}

impl Longhaul {
    /// Opens `sqlite://file`, and with the features of these names `postgres://…` or `mysql://…`,
    /// and brings its schema up to date.
    pub async fn open(url: &str) -> Result<Builder, StoreError> {
        let store = SqlStore::open(url, StoreOptions::default()).await?;
        let artifacts = match url.split_once("://") {
            Some((_, path)) if store.is_embedded() => {
                format!("{}.artifacts", path.split('?').next().unwrap_or(path))
            }
            _ => ARTIFACTS.to_owned(),
        };
        let mut builder = Builder::on(Arc::new(store.clone()), Arc::new(SystemClock::default()));

        builder.sql = Some(store);
        Ok(builder.artifacts(artifacts))
    }
}

impl Longhaul {
    /// Uses a store that the caller opened. Its schema must match this program.
    /// [`Builder::artifacts`] sets the folder for files.
    pub async fn on(store: SqlStore) -> Result<Builder, StoreError> {
        store.check_schema().await?;
        store.now().await?;
        let mut builder = Builder::on(Arc::new(store.clone()), Arc::new(SystemClock::default()));
        builder.sql = Some(store);
        Ok(builder)
    }
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
            artifacts: Arc::new(LazyArtifacts::new(PathBuf::from(ARTIFACTS))),
            #[cfg(feature = "server")]
            applications: Vec::new(),
            file_life: FileLife::default(),
            key_file: key_beside(PathBuf::from(ARTIFACTS)),
            artifact_key: None,
        }
    }

    /// Adds a task type.
    #[must_use]
    pub fn register<T: Task>(mut self, task: T) -> Self {
        let registered = self.registry.register(task);
        self.noting(registered)
    }

    /// Adds a plain async function as a task type.
    #[must_use]
    pub fn register_fn<P, R, F, Fut>(mut self, name: &str, settings: TypeSettings, run: F) -> Self
    where
        P: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static,
        R: Serialize + DeserializeOwned + JsonSchema + Send + 'static,
        F: Fn(P, Job) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome<R>> + Send + 'static,
    {
        let registered = self.registry.register_fn(name, settings, run);
        self.noting(registered)
    }

    /// Adds a task type without a [`Task`], for example one that runs in another process.
    #[must_use]
    pub fn register_handler(mut self, handler: Arc<dyn Handler>) -> Self {
        let registered = self.registry.register_handler(handler);
        self.noting(registered)
    }

    /// Registers the answer to a question of handlers ([`Job::ask`]). It gets the asking task, too.
    ///
    /// ```no_run
    /// use longhaul::Question;
    /// use serde::{Deserialize, Serialize};
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct MayUse { picture: u64 }
    ///
    /// impl Question for MayUse {
    ///     const NAME: &'static str = "may_use";
    ///     type Answer = bool;
    /// }
    ///
    /// # async fn owner_of(picture: u64) -> std::io::Result<String> { Ok(String::new()) }
    /// # async fn example() -> Result<(), longhaul::StoreError> {
    /// let builder = longhaul::Longhaul::open("sqlite://tasks.db").await?;
    /// let builder = builder.answer(|question: MayUse, asker| async move {
    ///     owner_of(question.picture).await.map(|owner| owner == asker.owner)
    /// });
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn answer<Q, F, Fut, E>(mut self, answer: F) -> Self
    where
        Q: Question,
        F: Fn(Q, Arc<TaskInfo>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Q::Answer, E>> + Send + 'static,
        E: Into<AnyError>,
    {
        let registered = self.registry.answer(answer);
        self.noting(registered)
    }

    pub(crate) fn noting(mut self, registered: Result<(), Invalid>) -> Self {
        self.problem = self.problem.or(registered.err());
        self
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

    /// The folder for files of tasks. It is created with the first file. So is the key that signs
    /// file URLs: a file beside the folder, with `.key` after its name.
    #[must_use]
    pub fn artifacts(mut self, folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        self.key_file = key_beside(folder.clone());
        self.artifacts = Arc::new(LazyArtifacts::new(folder));
        self
    }

    /// The key that signs file URLs, for several processes that share files.
    #[must_use]
    pub const fn artifact_key(mut self, key: [u8; 32]) -> Self {
        self.artifact_key = Some(key);
        self
    }

    /// How long files are kept, by tier.
    #[must_use]
    pub const fn file_life(mut self, life: FileLife) -> Self {
        self.file_life = life;
        self
    }

    /// Starts the background maintenance without a worker: this node runs no task.
    pub async fn start_maintenance(mut self) -> Result<Longhaul, StoreError> {
        self.worker.slots = 0;
        self.worker.queues = Vec::new();
        self.worker.maintenance = true;
        self.start_node().await
    }

    /// Starts a worker for the registered types, with the background maintenance if
    /// [`WorkerSettings::maintenance`] says so.
    pub async fn start(self) -> Result<Longhaul, StoreError> {
        self.check_slots()?;
        self.start_node().await
    }

    /// Refuses worker limits under which a task could never run.
    fn check_slots(&self) -> Result<(), Invalid> {
        let slots = self.worker.slots;
        let queues = &self.worker.queues;
        let reserved = queues
            .iter()
            .fold(0_usize, |sum, queue| sum.saturating_add(queue.reserved));

        if reserved > slots {
            let allowed = format!("{reserved} or more, or fewer reserved");
            return Err(Invalid::new(
                "slots",
                format!("is {slots}, and queues reserve {reserved}"),
                allowed,
            ));
        }

        if let Some(queue) = queues.iter().find(|queue| {
            queue
                .at_most
                .is_some_and(|most| most < queue.reserved.max(1))
        }) {
            let problem = format!("of {} is less than what it reserves, or 0", queue.name);
            return Err(Invalid::new(
                "at_most",
                problem,
                "as many as `reserved`, and at least 1",
            ));
        }

        let all_reserved = reserved == slots && slots > 0;
        if let Some(queue) = queues.iter().find(|queue| queue.reserved == 0)
            && all_reserved
        {
            let problem = format!(
                "is {slots}, all of them reserved, and {} has none of its own",
                queue.name
            );
            return Err(Invalid::new(
                "slots",
                problem,
                "more, or some reserved for it",
            ));
        }

        let limits = self.worker.resources.iter().chain(&self.worker.types);
        if let Some((name, _)) = limits.into_iter().find(|(_, most)| **most == 0) {
            return Err(Invalid::new(
                "limit",
                format!("of {name} is 0: nothing that needs it would ever run"),
                "1 or more",
            ));
        }

        if slots == 0 && self.registry.types().next().is_some() {
            let allowed = "1 or more; start_maintenance() starts a node that runs no task";
            return Err(Invalid::new(
                "slots",
                "is 0, and there are types that would never run",
                allowed,
            ));
        }

        Ok(())
    }

    #[cfg_attr(
        not(feature = "server"),
        expect(unused_mut, reason = "only a server has applications to take out")
    )]
    async fn start_node(mut self) -> Result<Longhaul, StoreError> {
        let maintenance = self.maintenance.clone();

        // A node must renew its lease before it counts as dead.
        let mut worker = self.worker.clone().within_lease(maintenance.lease);
        worker.asks_for_host_affinity |= !maintenance.host_affinity.is_zero();
        let is_alone = self.sql.as_ref().is_some_and(SqlStore::is_embedded);

        let queues: Vec<String> = worker
            .queues
            .iter()
            .map(|queue| queue.name.clone())
            .collect();

        #[cfg(feature = "server")]
        let applications = std::mem::take(&mut self.applications);
        let mut longhaul = self.assemble()?;
        let node = longhaul.make_node(worker, is_alone);

        // After the node: a task that an application submits may start on it at once.
        #[cfg(feature = "server")]
        let longhaul = longhaul.with_applications(applications)?;

        longhaul.declare_topology(&queues).await?;
        let maintenance = maintenance::all(&maintenance, None, &longhaul.client.files.store);
        longhaul.start_node(node, maintenance).await
    }

    /// A Longhaul that submits, reads and changes tasks, but runs none.
    pub fn without_worker(self) -> Result<Longhaul, StoreError> {
        #[cfg(feature = "server")]
        {
            let mut builder = self;
            let applications = std::mem::take(&mut builder.applications);
            Ok(builder.assemble()?.with_applications(applications)?)
        }
        #[cfg(not(feature = "server"))]
        self.assemble()
    }

    fn assemble(self) -> Result<Longhaul, StoreError> {
        if let Some(problem) = self.problem {
            return Err(problem.into());
        }

        let signer = match self.artifact_key {
            Some(key) => UrlSigner::new(move || Ok(key)),
            None => signer_of(self.key_file),
        };

        // With a broker, database notifications are not needed.
        let database_notifier = match &self.sql {
            Some(store) if !self.fleet.has_broker() => store.notifier(),
            Some(_) | None => None,
        };
        let notifier = database_notifier.unwrap_or_else(|| Arc::new(LocalNotifier::new()));

        let fleet = self
            .fleet
            .connect(self.limits.clone(), Arc::clone(&self.clock))?;

        let limiter = Arc::new(PacedRateLimiter::new(
            fleet.limiter,
            self.limits,
            self.clock,
        ));

        // Only SQL stores are measured.
        let catalog = self.registry.catalog(&self.routing);
        let metrics = Arc::new(Metrics::for_catalog(&catalog));
        let store: Arc<dyn Store> = match &self.sql {
            Some(sql) => Arc::new(sql.clone().observed_by(Arc::clone(&metrics) as _)),
            None => self.store,
        };

        let engine = EngineBuilder::new(Arc::clone(&store), fleet.bus, notifier)
            .metrics(metrics)
            .store_clock(self.sql.as_ref().and_then(SqlStore::own_clock))
            .broker(fleet.broker)
            .progress_cache(fleet.progress)
            .dependencies(fleet.dependencies)
            .tier_source(self.tiers)
            .catalog(catalog)
            // Fair order reads the store in real time; a test store has its own clock.
            .fair_order(self.sql.is_some())
            .build();

        if let Some(store) = &self.sql {
            store.write_messages(fleet.outbox);
        }

        let client = Client::new(
            engine,
            Arc::new(MemoryStreamLog::new(StreamBounds::default())),
            Arc::new(Files {
                store: self.artifacts,
                signer,
                life: self.file_life,
            }),
            self.routing,
            self.registry,
        );

        Ok(Longhaul::new(Arc::new(client), limiter, store, self.sql))
    }
}

/// The key file beside its folder.
fn key_beside(mut folder: PathBuf) -> PathBuf {
    folder.as_mut_os_string().push(".key");
    folder
}

/// Signs with the key in this file, created on first use.
fn signer_of(file: PathBuf) -> UrlSigner {
    UrlSigner::new(move || {
        signing_key(&file).map_err(|error| format!("{}: {error}", file.display()))
    })
}
