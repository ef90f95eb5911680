//! What a test's Longhaul is made of.

use std::sync::Arc;

use longhaul_domain::event::OutboxPolicy;
use longhaul_engine::services;
use longhaul_testkit::{
    clock::TestClock,
    reference::{CheckpointWatch, MemoryStore},
};
use longhaul_worker::{Job, Outcome, Task, TypeSettings};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::Mutex;

use super::{TestLonghaul, artifacts::MemoryArtifacts, fuse::Fuse};
use crate::{Builder, Limit};

/// What is to be started. [`TestLonghaul::new`] makes one.
#[derive(Debug)]
pub struct TestBuilder {
    builder: Builder,
    clock: TestClock,
    fuse: Arc<Fuse>,
}

impl TestBuilder {
    pub(super) fn new() -> Self {
        let (clock, fuse) = (TestClock::fixed(), Arc::new(Fuse::default()));
        let watch: Arc<dyn CheckpointWatch> = Arc::clone(&fuse) as _;
        let store = MemoryStore::new(clock.clone(), OutboxPolicy::default()).watched(watch);
        let builder = Builder::on(Arc::new(store), Arc::new(clock.clone()));
        let mut builder = builder.artifact_key([7; 32]);
        builder.artifacts = Arc::new(MemoryArtifacts::default());
        Self {
            builder,
            clock,
            fuse,
        }
    }

    /// Adds a task type.
    #[must_use]
    pub fn register<T: Task>(self, task: T) -> Self {
        self.configure(|builder| builder.register(task))
    }

    /// Adds a plain async function as a task type.
    #[must_use]
    pub fn register_fn<P, R, F, Fut>(self, name: &str, settings: TypeSettings, run: F) -> Self
    where
        P: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static,
        R: Serialize + DeserializeOwned + JsonSchema + Send + 'static,
        F: Fn(P, Job) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome<R>> + Send + 'static,
    {
        self.configure(|builder| builder.register_fn(name, settings, run))
    }

    /// The rate limit of a provider (`openai`) or of a model (`openai/gpt-4`).
    #[must_use]
    pub fn limit(self, key: &str, limit: Limit) -> Self {
        self.configure(|builder| builder.limit(key, limit))
    }

    /// Sets what else the program sets: `configure(|builder| builder.routing(routing).slots(1))`.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(Builder) -> Builder) -> Self {
        self.builder = change(self.builder);
        self
    }

    /// Starts. Nothing runs yet: [`TestLonghaul::run_until_idle`] does.
    ///
    /// # Panics
    ///
    /// When something is wrong with the types or limits, as [`Builder::start`] would refuse it.
    #[track_caller]
    pub fn start(self) -> TestLonghaul {
        let (settings, files) = (
            self.builder.worker.clone(),
            Arc::clone(&self.builder.artifacts),
        );
        let duties = services::all(&self.builder.duties, None, &files);
        let longhaul = match self.builder.without_worker() {
            Ok(longhaul) => longhaul,
            Err(error) => panic!("Longhaul cannot be started: {error}"),
        };
        TestLonghaul {
            longhaul,
            clock: self.clock,
            fuse: self.fuse,
            settings,
            duties,
            worker: Mutex::new(None),
        }
    }
}
