//! A node and its store with a line between them that the test holds: what the loops do when answers are late or never
//! come. Time is tokio's, which stands still and is moved together with the store's.

pub(crate) mod line;

mod drain;
mod files;
mod looks;
mod news;
mod patience;
mod room;
mod silence;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use std::time::Duration;

use longhaul_domain::event::OutboxPolicy;
use longhaul_testkit::{clock::TestClock, reference::MemoryStore};

use crate::{Builder, Context, Outcome, Task, TypeSettings};
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

    /// Lets the time go on, for the node and for the store alike.
    pub(crate) async fn pass(&self, time: Duration) {
        let step = Duration::from_millis(50);
        for _ in 0..time.as_millis() / step.as_millis() {
            self.clock.advance_ms(50);
            tokio::time::sleep(step).await;
        }
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
