//! A store behind a link that the test controls. Time is tokio's, which is paused and moves
//! together with the store's.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use std::time::Duration;

use longhaul::{Builder, Context, Outcome, Task, TypeSettings, WorkerSettings, testing};
use longhaul_domain::event::OutboxPolicy;
use longhaul_node::PollSettings;
use longhaul_testkit::{clock::TestClock, reference::MemoryStore};

use crate::store_link::Link;

pub(crate) struct RemoteStore {
    pub(crate) clock: TestClock,
    pub(crate) link: Arc<Link>,
    pub(crate) store: Arc<MemoryStore>,
}

impl RemoteStore {
    pub(crate) fn new() -> Self {
        Self::with(OutboxPolicy::default())
    }

    /// With a store that writes these messages.
    pub(crate) fn with(policy: OutboxPolicy) -> Self {
        let clock = TestClock::fixed();
        let link = Arc::new(Link::default());
        let watch: Arc<Link> = Arc::clone(&link);
        let store = Arc::new(MemoryStore::new(clock.clone(), policy).with_node_watch(watch));
        Self { clock, link, store }
    }

    /// A process on this store, as the facade starts it.
    pub(crate) fn builder(&self) -> Builder {
        let store: Arc<MemoryStore> = Arc::clone(&self.store);
        testing::on(store, Arc::new(self.clock.clone()))
    }

    /// Lets time pass, for the nodes and for the store alike.
    pub(crate) async fn pass(&self, time: Duration) {
        let step = Duration::from_millis(50);
        for _ in 0..time.as_millis() / step.as_millis() {
            self.clock.advance_ms(50);
            tokio::time::sleep(step).await;
        }
    }
}

/// A worker that does not poll within the time of a test.
pub(crate) fn without_polling(slots: usize) -> WorkerSettings {
    let hour = Duration::from_secs(3_600);
    let poll = PollSettings {
        least: hour,
        most: hour,
    };

    WorkerSettings {
        slots,
        poll,
        ..WorkerSettings::default()
    }
}

/// Counts how often it runs. One runs at a time.
#[derive(Clone, Default)]
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Counted {
    pub(crate) fn runs(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

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
