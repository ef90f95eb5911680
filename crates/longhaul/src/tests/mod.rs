//! A node and its store with a line between them that the test holds: what the loops do when answers are late or never
//! come. Time is tokio's, which stands still and is moved together with the store's.

pub(crate) mod line;

mod drain;
mod duties;
mod files;
mod looks;
mod news;
mod patience;
mod room;
mod rung;
mod silence;
mod told;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use std::time::Duration;

use longhaul_domain::{contract::Doorbell, event::OutboxPolicy};
use longhaul_engine::{
    Files, Parts,
    files::FileLife,
    pace::PollSettings,
    routing::Routing,
    services::{self, DutySettings},
    signer::UrlSigner,
};
use longhaul_testkit::{clock::TestClock, reference::MemoryStore};
use longhaul_transport::local::{MemoryEventBus, MemoryRateLimiter, MemoryStreamLog, StreamBounds};
use longhaul_worker::{Registry, Services, Worker};

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
        let (clock, line) = (TestClock::fixed(), Arc::new(Line::default()));
        let watch: Arc<Line> = Arc::clone(&line);
        let store = Arc::new(MemoryStore::new(clock.clone(), policy).with_node_watch(watch));
        Self { clock, line, store }
    }

    fn builder(&self) -> Builder {
        let store: Arc<MemoryStore> = Arc::clone(&self.store);
        Builder::on(store, Arc::new(self.clock.clone()))
    }

    /// A process that submits and looks, with a bell and other parts of the test's own.
    pub(crate) fn client(
        &self,
        more: impl FnOnce(Parts) -> Parts,
        bell: Arc<dyn Doorbell>,
        types: impl FnOnce(&mut Registry),
    ) -> Longhaul {
        let mut registry = Registry::default();
        types(&mut registry);
        let store: Arc<MemoryStore> = Arc::clone(&self.store);
        let engine = more(Parts::new(
            store,
            Arc::new(MemoryEventBus::new(1_000)),
            bell,
        ))
        .build();
        let clock = Arc::new(self.clock.clone());
        let files = Files {
            store: Arc::new(LazyArtifacts::new("unused".into())),
            signer: UrlSigner::new(|| Ok([0; 32])),
            life: FileLife::default(),
        };
        let services = Services::new(
            engine,
            Arc::new(MemoryRateLimiter::new(clock, Default::default()).unwrap()),
            Arc::new(MemoryStreamLog::new(StreamBounds::default())),
            Arc::new(files),
            Routing::default(),
            registry,
        );
        Longhaul::new(services, None)
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
pub(crate) async fn working(client: Longhaul, settings: WorkerSettings) -> Longhaul {
    let duties = services::all(&DutySettings::default(), None, &client.services().artifacts);
    let worker = Worker::start(Arc::clone(client.services()), settings, duties, false)
        .await
        .unwrap();
    client.with_worker(worker)
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
