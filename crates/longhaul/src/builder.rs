//! From a URL to a running Longhaul.

use std::path::PathBuf;
use std::sync::Arc;

use longhaul_domain::{
    Clock, Invalid, StoreError,
    contract::{
        ArtifactStore, Store,
        rate_limiter::{Limit, LimitRules},
    },
};
use longhaul_engine::{
    Files, Parts,
    files::FileLife,
    routing::Routing,
    services::{self, DutySettings},
    signer::UrlSigner,
    tiers::TierSource,
};
use longhaul_store::{SqlStore, StoreOptions, SystemClock};
use longhaul_transport::local::{
    LocalDoorbell, MemoryStreamLog, PacedRateLimiter, StreamBounds, signing_key,
};
use longhaul_worker::{
    AnyError, Job, Outcome, Question, Registry, Services, Task, TaskInfo, TypeSettings, Worker,
    WorkerSettings,
};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

use crate::{Longhaul, artifacts::LazyArtifacts, fleet::FleetSettings, tier_source::tier_source};

/// The folder for files when nothing is said and the store is a server.
const ARTIFACTS: &str = "longhaul-artifacts";

/// What is to be started. [`Longhaul::open`] makes one.
#[derive(Debug)]
pub struct Builder {
    pub(crate) store: Arc<dyn Store>,
    sql: Option<SqlStore>,
    clock: Arc<dyn Clock>,
    registry: Registry,
    /// The first thing that was wrong; told at the start.
    problem: Option<Invalid>,
    pub(crate) worker: WorkerSettings,
    pub(crate) duties: DutySettings,
    pub(crate) fleet: FleetSettings,
    routing: Routing,
    tiers: Option<Arc<dyn TierSource>>,
    limits: LimitRules,
    pub(crate) artifacts: Arc<dyn ArtifactStore>,
    #[cfg(feature = "server")]
    pub(crate) applications: Vec<crate::mounting::Application>,
    file_life: FileLife,
    /// Where the key is that URLs of files are signed with, unless one was given.
    key_file: PathBuf,
    artifact_key: Option<[u8; 32]>,
}

impl Longhaul {
    /// Opens `sqlite://file`, and with the features of these names `postgres://…` or `mysql://…`, and brings its schema up to date.
    pub async fn open(url: &str) -> Result<Builder, StoreError> {
        let store = SqlStore::open(url, StoreOptions::default()).await?;
        let artifacts = match url.split_once("://").filter(|_| store.is_embedded()) {
            Some((_, path)) => format!("{}.artifacts", path.split('?').next().unwrap_or(path)),
            None => ARTIFACTS.to_owned(),
        };
        let mut builder = Builder::on(Arc::new(store.clone()), Arc::new(SystemClock::default()));
        builder.sql = Some(store);
        Ok(builder.artifacts(artifacts))
    }
}

impl Longhaul {
    /// On a store that was opened by hand, as it is: its schema must be this program's. [`Builder::artifacts`] says where
    /// files go.
    pub async fn on(store: SqlStore) -> Result<Builder, StoreError> {
        store.check_schema().await?;
        store.now().await?;
        let mut builder = Builder::on(Arc::new(store.clone()), Arc::new(SystemClock::default()));
        builder.sql = Some(store);
        Ok(builder)
    }
}

impl Builder {
    /// On a store of any kind.
    pub(crate) fn on(store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Self {
        Self {
            store,
            sql: None,
            clock,
            registry: Registry::default(),
            problem: None,
            worker: WorkerSettings::default(),
            duties: DutySettings::default(),
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

    /// Says who answers a question of handlers ([`Job::ask`]), and hears which task asks.
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

    /// Tasks that run at once in this process.
    #[must_use]
    pub const fn slots(mut self, slots: usize) -> Self {
        self.worker.slots = slots;
        self
    }

    /// Everything that a worker can be told.
    #[must_use]
    pub fn worker(mut self, settings: WorkerSettings) -> Self {
        self.worker = settings;
        self
    }

    /// How many tasks of this process may use a named resource at once. [`Self::worker`] sets all anew.
    #[must_use]
    pub fn resource(mut self, name: &str, tasks: usize) -> Self {
        self.worker.resources.insert(name.to_owned(), tasks);
        self
    }

    /// When nodes count as dead, and how long ended tasks are kept.
    #[must_use]
    pub fn duties(mut self, settings: DutySettings) -> Self {
        self.duties = settings;
        self
    }

    /// Which queue a task goes to when its submitter names none.
    #[must_use]
    pub fn routing(mut self, routing: Routing) -> Self {
        self.routing = routing;
        self
    }

    /// Who knows the tier of an owner, for tasks whose submitter and whose token say nothing: a look into a table of the
    /// application, a call of another service. It is asked when a task is submitted, over HTTP, too; an answer is good for
    /// half a minute. After an error, or two seconds without an answer, what was known last counts.
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

    /// The rate limit of a provider (`openai`) or of a model (`openai/gpt-4`), which handlers ask for with
    /// [`Job::permit`]. A call of a model also counts in its provider's limit.
    #[must_use]
    pub fn limit(mut self, key: &str, limit: Limit) -> Self {
        self.limits = self.limits.limit(key, limit);
        self
    }

    /// All rate limits at once, with what a key has that no limit is named for.
    #[must_use]
    pub fn limits(mut self, limits: LimitRules) -> Self {
        self.limits = limits;
        self
    }

    /// The folder for files that tasks make. It is made when the first one is, and so is the key that their URLs are
    /// signed with: a file beside the folder, with `.key` after its name.
    #[must_use]
    pub fn artifacts(mut self, folder: impl Into<PathBuf>) -> Self {
        let folder = folder.into();
        self.key_file = key_beside(folder.clone());
        self.artifacts = Arc::new(LazyArtifacts::new(folder));
        self
    }

    /// The key that the URLs of files are signed with, for several processes that share their files.
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

    /// Starts the background duties without a worker: this node runs no task.
    pub async fn start_duties(mut self) -> Result<Longhaul, StoreError> {
        self.worker.slots = 0;
        self.worker.queues = Vec::new();
        self.worker.duties = true;
        self.start_node().await
    }

    /// Starts a worker for the registered types, with the background duties if [`WorkerSettings::duties`] says so.
    pub async fn start(self) -> Result<Longhaul, StoreError> {
        self.check_slots()?;
        self.start_node().await
    }

    fn check_slots(&self) -> Result<(), Invalid> {
        let (slots, queues) = (self.worker.slots, &self.worker.queues);
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
        if let Some(queue) = queues
            .iter()
            .find(|queue| queue.reserved == 0)
            .filter(|_| reserved == slots && slots > 0)
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
            let allowed = "1 or more; start_duties() starts a node that runs no task";
            return Err(Invalid::new(
                "slots",
                "is 0, and there are types that would never run",
                allowed,
            ));
        }
        Ok(())
    }

    async fn start_node(self) -> Result<Longhaul, StoreError> {
        let duties = self.duties.clone();
        // A node must not be taken for dead between two of its heartbeats.
        let mut worker = self.worker.clone().within_lease(duties.lease);
        worker.asks_for_kept |= !duties.keep_for_host.is_zero();
        let is_alone = self.sql.as_ref().is_some_and(SqlStore::is_embedded);
        let queues: Vec<String> = worker
            .queues
            .iter()
            .map(|queue| queue.name.clone())
            .collect();
        let longhaul = self.without_worker()?;
        longhaul.declare_topology(&queues).await?;
        let all = services::all(&duties, None, &longhaul.services.artifacts);
        let worker = Worker::start(Arc::clone(&longhaul.services), worker, all, is_alone).await?;
        Ok(longhaul.with_worker(worker))
    }

    /// For processes that only submit and look.
    pub fn without_worker(self) -> Result<Longhaul, StoreError> {
        if let Some(problem) = self.problem {
            return Err(problem.into());
        }
        let signer = match self.artifact_key {
            Some(key) => UrlSigner::new(move || Ok(key)),
            None => signer_of(self.key_file),
        };
        // With a broker, nobody need be woken by the database.
        let shared_bell = self
            .sql
            .as_ref()
            .filter(|_| !self.fleet.has_broker())
            .and_then(SqlStore::doorbell);
        let bell = shared_bell.unwrap_or_else(|| Arc::new(LocalDoorbell::new()));
        let fleet = self
            .fleet
            .connect(self.limits.clone(), Arc::clone(&self.clock))?;
        let limiter = Arc::new(PacedRateLimiter::new(
            fleet.limiter,
            self.limits,
            self.clock,
        ));
        let parts = Parts::new(self.store, fleet.bus, bell);
        let engine = parts
            .broker(fleet.broker)
            .progress_cache(fleet.progress)
            .build();
        engine.set_dependencies(fleet.dependencies);
        if let Some(store) = &self.sql {
            store.write_messages(fleet.outbox);
        }
        // A store whose clock a test sets has no lines that anybody could look at.
        if self.sql.is_some() {
            engine.take_turns();
        }
        if let Some(tiers) = self.tiers {
            engine.set_tier_source(tiers);
        }
        engine
            .metrics
            .know_types(self.registry.types().map(|kind| kind.name.as_str()));
        let services = Services::new(
            engine,
            limiter,
            Arc::new(MemoryStreamLog::new(StreamBounds::default())),
            Arc::new(Files {
                store: self.artifacts,
                signer,
                life: self.file_life,
            }),
            self.routing,
            self.registry,
        );
        let longhaul = Longhaul::new(services, self.sql);
        #[cfg(feature = "server")]
        let longhaul = longhaul.with_applications(self.applications)?;
        Ok(longhaul)
    }
}

/// The file of the key, beside the folder that it is for.
fn key_beside(mut folder: PathBuf) -> PathBuf {
    folder.as_mut_os_string().push(".key");
    folder
}

/// Signs with the key in this file, which is made when it is first needed.
fn signer_of(file: PathBuf) -> UrlSigner {
    UrlSigner::new(move || {
        signing_key(&file).map_err(|error| format!("{}: {error}", file.display()))
    })
}
