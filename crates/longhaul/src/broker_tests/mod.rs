//! Nodes with a store and a broker between them, both in memory and both to be broken by the test.
//! Time is tokio's, which stands still and is moved together with the store's.

mod hints;
mod outages;
mod slots;
mod words;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use std::time::Duration;

use longhaul_domain::{Status, TaskId, contract::Broker, event::OutboxPolicy};
use longhaul_sdk::Registry;
use longhaul_testkit::memory_broker::MemoryBroker;
use longhaul_transport::local::LocalNotifier;

use crate::{
    Context, Longhaul, Outcome, Stop, Task, TypeSettings, WorkerSettings,
    tests::{Far, line::Way, working},
};

/// Shorter than a claimer's looks while there is a broker, longer than a dispatcher's.
const A_WHILE: Duration = Duration::from_secs(3);

/// A store and a broker.
struct Fleet {
    far: Far,
    broker: Arc<MemoryBroker>,
}

impl Fleet {
    fn new() -> Self {
        Self::with(OutboxPolicy::default())
    }

    fn with(policy: OutboxPolicy) -> Self {
        Self {
            far: Far::with(policy),
            broker: Arc::new(MemoryBroker::new()),
        }
    }

    /// A process that submits and looks.
    fn client(&self, types: impl FnOnce(&mut Registry)) -> Longhaul {
        let broker: Arc<dyn Broker> = Arc::<MemoryBroker>::clone(&self.broker);
        self.far.client(
            |parts| parts.broker(Some(broker)),
            Arc::new(LocalNotifier::new()),
            types,
        )
    }

    /// A process that works.
    async fn node(&self, settings: WorkerSettings, types: impl FnOnce(&mut Registry)) -> Longhaul {
        working(self.client(types), settings).await
    }

    async fn pass(&self, time: Duration) {
        self.far.pass(time).await;
    }

    fn status(&self, id: TaskId) -> Status {
        self.far.store.look(|tasks, _| tasks[&id].status)
    }

    /// How many tasks are at this status.
    fn count(&self, status: Status) -> usize {
        self.far
            .store
            .look(|tasks, _| tasks.values().filter(|task| task.status == status).count())
    }

    /// Lets time go on until the task is so.
    async fn until(&self, id: TaskId, status: Status) {
        while self.status(id) != status {
            self.pass(Duration::from_millis(50)).await;
        }
    }

    fn claims_by_hint(&self) -> usize {
        self.far.line.count("claim_named", Way::Back)
    }
}

/// Counts how often it runs.
#[derive(Clone, Default)]
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn runs(&self) -> usize {
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
}

/// Known to the submitter, and to nobody who works.
struct Unserved;

impl Task for Unserved {
    const TYPE: &'static str = "unserved";
    type Params = ();
    type Output = ();

    async fn run(&self, _ctx: Context<Self>) -> Outcome<()> {
        Ok(())
    }
}

fn slots(slots: usize) -> WorkerSettings {
    WorkerSettings {
        slots,
        ..WorkerSettings::default()
    }
}

fn no_types(_: &mut Registry) {}

fn counted(counted: &Counted) -> impl FnOnce(&mut Registry) + use<> {
    let counted = counted.clone();
    move |registry| registry.register(counted).unwrap()
}
