//! Nodes with a store and a broker between them. Both are in memory, and the test can break both.
//! Time is tokio's, which is paused and moves together with the store's.

mod early_hints;
mod hints;
mod messages;
mod outages;
mod slots;

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use std::time::Duration;

use longhaul::{Context, Outcome, Stop, Task, WorkerSettings};
use longhaul_domain::{Status, TaskId, contract::Broker, event::OutboxPolicy};
use longhaul_sdk::Registry;
use longhaul_testkit::memory_broker::MemoryBroker;
use longhaul_transport::local::LocalNotifier;
use tokio::sync::Notify;

use crate::{
    process::{Assembly, Process},
    remote_store::RemoteStore,
    store_link::Leg,
};

/// Shorter than the time between polls while there is a broker, longer than a dispatcher's round.
const A_WHILE: Duration = Duration::from_secs(3);

/// A store and a broker.
struct Fleet {
    remote: RemoteStore,
    broker: Arc<MemoryBroker>,
}

impl Fleet {
    fn new() -> Self {
        Self::with(OutboxPolicy::default())
    }

    fn with(policy: OutboxPolicy) -> Self {
        Self {
            remote: RemoteStore::with(policy),
            broker: Arc::new(MemoryBroker::new()),
        }
    }

    fn assembly(&self, types: impl FnOnce(&mut Registry)) -> Assembly {
        let broker: Arc<dyn Broker> = Arc::<MemoryBroker>::clone(&self.broker);
        let notifier = Arc::new(LocalNotifier::new());
        Assembly::new(&self.remote, Some(broker), notifier, types)
    }

    /// A process that submits and reads.
    fn client(&self, types: impl FnOnce(&mut Registry)) -> Process {
        self.assembly(types).without_node()
    }

    /// A process that runs tasks.
    async fn node(&self, settings: WorkerSettings, types: impl FnOnce(&mut Registry)) -> Process {
        self.assembly(types).with_node(settings).await
    }

    async fn pass(&self, time: Duration) {
        self.remote.pass(time).await;
    }

    fn status(&self, id: TaskId) -> Status {
        self.remote.store.look(|tasks, _| tasks[&id].status)
    }

    /// How many tasks have this status.
    fn count(&self, status: Status) -> usize {
        self.remote
            .store
            .look(|tasks, _| tasks.values().filter(|task| task.status == status).count())
    }

    /// Lets time pass until the task has this status.
    async fn until(&self, id: TaskId, status: Status) {
        while self.status(id) != status {
            self.pass(Duration::from_millis(50)).await;
        }
    }

    fn claims_by_hint(&self) -> usize {
        self.remote.link.count("claim_named", Leg::Answer)
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

/// Runs until it should stop. Notifies when it starts and when it stops.
#[derive(Default)]
struct Endless(Arc<Notify>);

impl Task for Endless {
    const TYPE: &'static str = "endless";
    type Params = ();
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        self.0.notify_one();
        ctx.cancelled().await;
        self.0.notify_one();
        Err(Stop::cancelled())
    }
}

/// A type that the submitter knows, and no worker.
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
