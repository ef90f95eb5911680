//! A node and its store with a line between them that the test holds: what the loops do when
//! answers are late or never come. Time is tokio's, which stands still and is moved together with
//! the store's.

pub(crate) mod line;

mod drain;
mod events;
mod files;
mod hinted;
mod looks;
mod maintenance_jobs;
mod patience;
mod room;
mod silence;
mod told;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use std::time::Duration;

use longhaul_domain::{contract::Notifier, event::OutboxPolicy};
use longhaul_engine::{
    EngineBuilder, Files,
    files::{FileLife, UrlSigner},
    routing::Routing,
};
use longhaul_node::{
    PollSettings,
    maintenance::{self, MaintenanceSettings},
};
use longhaul_sdk::{Client, Registry};
use longhaul_testkit::{clock::TestClock, reference::MemoryStore};
use longhaul_transport::local::{MemoryEventBus, MemoryRateLimiter, MemoryStreamLog, StreamBounds};

use crate::{
    Builder, Context, Longhaul, Outcome, Task, TypeSettings, WorkerSettings,
    artifacts::LazyArtifacts,
};
use line::Line;

/// A store in memory at the other end of a line.
pub(crate) struct Far {
    pub(crate) clock: TestClock,
    pub(crate) line: Arc<Line>,
    pub(crate) store: Arc<MemoryStore>,
}

impl Far {
    pub(crate) fn new() -> Self {
        Self::with(OutboxPolicy::default())
    }

    /// With a store that writes these messages.
    pub(crate) fn with(policy: OutboxPolicy) -> Self {
        let clock = TestClock::fixed();
        let line = Arc::new(Line::default());
        let watch: Arc<Line> = Arc::clone(&line);
        let store = Arc::new(MemoryStore::new(clock.clone(), policy).with_node_watch(watch));
        Self { clock, line, store }
    }

    fn builder(&self) -> Builder {
        let store: Arc<MemoryStore> = Arc::clone(&self.store);
        Builder::on(store, Arc::new(self.clock.clone()))
    }

    /// A process that submits and looks, with a hint and other parts of the test's own.
    pub(crate) fn client(
        &self,
        more: impl FnOnce(EngineBuilder) -> EngineBuilder,
        hint: Arc<dyn Notifier>,
        types: impl FnOnce(&mut Registry),
    ) -> Longhaul {
        let mut registry = Registry::default();
        types(&mut registry);
        let store: Arc<MemoryStore> = Arc::clone(&self.store);
        let engine = more(EngineBuilder::new(
            Arc::<MemoryStore>::clone(&store),
            Arc::new(MemoryEventBus::new(1_000)),
            hint,
        ))
        .catalog(registry.catalog(&Routing::default()))
        .build();
        let clock = Arc::new(self.clock.clone());
        let files = Files {
            store: Arc::new(LazyArtifacts::new("unused".into())),
            signer: UrlSigner::new(|| Ok([0; 32])),
            life: FileLife::default(),
        };
        let limiter = Arc::new(MemoryRateLimiter::new(clock, Default::default()).unwrap());
        let client = Client::new(
            engine,
            Arc::new(MemoryStreamLog::new(StreamBounds::default())),
            Arc::new(files),
            Routing::default(),
            registry,
        );
        Longhaul::new(Arc::new(client), limiter, store, None)
    }

    /// Lets the time go on, for the node and for the store alike.
    pub(crate) async fn pass(&self, time: Duration) {
        let step = Duration::from_millis(50);
        for _ in 0..time.as_millis() / step.as_millis() {
            self.clock.advance_ms(50);
            tokio::time::sleep(step).await;
        }
    }
}

/// The process, with a worker.
pub(crate) async fn working(mut client: Longhaul, settings: WorkerSettings) -> Longhaul {
    let files = &client.client.files.store;
    let maintenance = maintenance::all(&MaintenanceSettings::default(), None, files);

    let node = client.make_node(settings, false);
    client.start_node(node, maintenance).await.unwrap()
}

/// Never looks by itself in the time of a test.
fn deaf(slots: usize) -> WorkerSettings {
    let hour = Duration::from_secs(3_600);
    WorkerSettings {
        slots,
        poll: PollSettings {
            least: hour,
            most: hour,
        },
        ..WorkerSettings::default()
    }
}

/// Counts how often it runs.
#[derive(Clone, Default)]
struct Counted(Arc<AtomicUsize>);

impl Task for Counted {
    const TYPE: &'static str = "counted";
    type Params = ();
    type Output = ();

    async fn run(&self, _ctx: Context<Self>) -> Outcome<()> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn settings(&self) -> TypeSettings {
        TypeSettings::new().concurrency(1)
    }
}
