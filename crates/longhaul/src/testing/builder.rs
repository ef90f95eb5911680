//! The configuration of a test's Longhaul.

use std::sync::Arc;

use longhaul_domain::{contract::ArtifactStore, event::OutboxPolicy};
use longhaul_node::maintenance;
use longhaul_sdk::{Job, Outcome, Task, TypeSettings};
use longhaul_testkit::{
    clock::TestClock,
    reference::{CheckpointWatch, MemoryStore},
};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::Mutex;

use super::{TestLonghaul, artifacts::MemoryArtifacts, fuse::Fuse};
use crate::{Builder, Limit};

/// Configures a test's Longhaul. [`TestLonghaul::new`] makes one.
#[derive(Debug)]
pub struct TestBuilder {
    builder: Builder,
    clock: TestClock,
    fuse: Arc<Fuse>,
}

impl TestBuilder {
    pub(super) fn new() -> Self {
        let clock = TestClock::fixed();
        let fuse = Arc::new(Fuse::default());
        let watch: Arc<dyn CheckpointWatch> = Arc::clone(&fuse) as _;
        let store = MemoryStore::new(clock.clone(), OutboxPolicy::default()).watched(watch);
        let mut builder = Builder::on(Arc::new(store), Arc::new(clock.clone()));

        builder = builder.artifact_key([7; 32]);
        builder.files.store = Arc::new(MemoryArtifacts::default());
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

    /// Puts files into this store, for example one that fails.
    #[must_use]
    pub fn artifact_store(mut self, store: Arc<dyn ArtifactStore>) -> Self {
        self.builder.files.store = store;
        self
    }

    /// Sets any other option: `configure(|builder| builder.routing(routing).slots(1))`.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(Builder) -> Builder) -> Self {
        self.builder = change(self.builder);
        self
    }

    /// Starts. No task runs before [`TestLonghaul::run_until_idle`] or a like call.
    ///
    /// # Panics
    ///
    /// When [`Builder::start`] would refuse the types or limits.
    #[track_caller]
    pub fn start(self) -> TestLonghaul {
        let settings = self.builder.worker.clone();
        let files = Arc::clone(&self.builder.files.store);
        let maintenance = maintenance::all(&self.builder.maintenance, None, &files);
        let longhaul = match self.builder.without_worker() {
            Ok(longhaul) => longhaul,
            Err(error) => panic!("Longhaul cannot be started: {error}"),
        };

        TestLonghaul {
            longhaul,
            clock: self.clock,
            fuse: self.fuse,
            settings,
            maintenance,
            node: Mutex::new(None),
        }
    }
}
