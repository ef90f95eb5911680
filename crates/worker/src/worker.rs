//! The worker: claims what it has room for, runs it, and reports how it ended.
//!
//! The decisions are the desk's ([`longhaul_engine::Desk`]); here are the loops that carry them out. One loop claims, or
//! with a broker one for each queue answers its bells; one delivers reports, one renews the leases, one writes progress and log lines. Each survives a store that is away: it waits
//! and goes on, and what was not delivered is delivered again.

mod answerer;
mod claimer;
mod eager;
mod executor;
mod heart;
mod hooks;
mod kept;
mod manual;
mod named;
mod reporter;

use std::collections::{BTreeSet, HashMap};
use std::sync::{
    Arc, Mutex, PoisonError, RwLock, Weak,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};
use std::time::Duration;

use longhaul_domain::{Lease, NewTask, NodeId, Serves, StoreError, TaskId, bounds};
use longhaul_engine::{
    Desk, Engine, LocalNode,
    desk::StopReason,
    service::{self, Duty},
    services,
    slots::{QueueSlots, SlotPlan, TypeSlots},
};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub(crate) use eager::submit;
pub use manual::ManualWorker;

use crate::{
    patience::within,
    random,
    run::{Run, Services},
    settings::WorkerSettings,
};

/// How long after the drain's end handlers that were told to stop may take.
const STOP_WAIT: Duration = Duration::from_secs(2);
/// How long a shutdown tries to deliver the last reports.
const LAST_REPORTS: Duration = Duration::from_secs(10);
/// How long it waits for what the loops have asked the store for.
const LAST_ANSWERS: Duration = Duration::from_secs(10);

/// A running worker. [`Worker::stop`] drains it; dropped without that, its tasks count as crashed. A
/// [`ManualWorker`] does the same without loops, a step at a time.
#[derive(Debug)]
pub struct Worker {
    inner: Arc<Inner>,
    /// The claimer, and an answerer for each queue where there is a broker.
    claimers: JoinSet<()>,
    loops: JoinSet<()>,
}

/// What the loops of a worker share.
#[derive(Debug)]
pub(crate) struct Inner {
    services: Arc<Services>,
    settings: WorkerSettings,
    /// Changed when the node was declared dead and came back.
    node: RwLock<NodeId>,
    desk: Mutex<Desk>,
    runs: Mutex<HashMap<TaskId, Arc<Run>>>,
    /// A slot has become free, or reports that left no room were delivered: the claimer's, then each answerer's.
    rooms: Vec<Notify>,
    /// Whoever asks the store for all that there is room for has this alone; whoever holds slots one by one shares it.
    asking: tokio::sync::RwLock<()>,
    /// Answerers that wait for a slot, or have just got one.
    starving: AtomicUsize,
    /// Tasks that bells have brought.
    brought: AtomicU64,
    /// Queues and types whose bells were turned down for want of a slot: once there is one, the store is asked.
    owed: Mutex<BTreeSet<(String, String)>>,
    /// A handler has ended.
    ended: Notify,
    /// No more claims.
    draining: CancellationToken,
    /// The loops end.
    closing: CancellationToken,
    /// Whether handlers that do not stop are dropped.
    dropping: AtomicBool,
    /// Whether a submit that claims is under way.
    eager: AtomicBool,
    /// Whether no other process has the store open.
    is_alone: bool,
    /// The handlers that run now, with what must be done after them. Closed from the start, as the hooks are.
    handlers: TaskTracker,
}

impl Inner {
    /// A worker without its loops, registered as a node.
    async fn start(
        services: Arc<Services>,
        settings: WorkerSettings,
        is_alone: bool,
    ) -> Result<Arc<Self>, StoreError> {
        let plan = plan(&services, &settings);
        let inner = Arc::new(Self {
            rooms: (0..=plan.queues.len()).map(|_| Notify::new()).collect(),
            asking: tokio::sync::RwLock::new(()),
            starving: AtomicUsize::new(0),
            brought: AtomicU64::new(0),
            owed: Mutex::default(),
            desk: Mutex::new(Desk::new(plan)),
            services,
            settings,
            node: RwLock::new(NodeId(random::id())),
            runs: Mutex::default(),
            ended: Notify::new(),
            draining: CancellationToken::new(),
            closing: CancellationToken::new(),
            dropping: AtomicBool::new(false),
            eager: AtomicBool::new(false),
            is_alone,
            handlers: TaskTracker::new(),
        });
        inner.handlers.close();
        inner.register().await?;
        if is_alone {
            inner
                .engine()
                .store
                .declare_others_dead(inner.node())
                .await?;
        }
        Ok(inner)
    }

    /// Tells of a task that nobody will ever run, because the only worker there is does not.
    pub(crate) fn warn_if_nobody_runs(&self, task: &NewTask) {
        if self.is_alone
            && self
                .desk()
                .slots()
                .has_room(&task.queue, &task.task_type)
                .is_none()
        {
            let (task_type, queue) = (&task.task_type, &task.queue);
            tracing::warn!(%task_type, %queue, "a task that this worker does not run: its type is not registered, or its queue not served");
        }
    }

    fn engine(&self) -> &Engine {
        &self.services.engine
    }

    fn desk(&self) -> std::sync::MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn runs(&self) -> std::sync::MutexGuard<'_, HashMap<TaskId, Arc<Run>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There may be room for another task.
    fn room_freed(&self) {
        self.rooms.iter().for_each(Notify::notify_one);
    }

    fn node(&self) -> NodeId {
        *self.node.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers under a new boot id. Whatever an earlier id held is lost to it.
    async fn register(&self) -> Result<(), StoreError> {
        let id = NodeId(random::id());
        let serves = {
            let desk = self.desk();
            let slots = desk.slots();
            Serves {
                queues: slots.queues().map(str::to_owned).collect(),
                task_types: slots.task_types().map(str::to_owned).collect(),
                slots: self.settings.slots,
            }
        };
        self.engine()
            .store
            .register_node(id, &self.settings.name, &self.settings.host, Some(&serves))
            .await?;
        *self.node.write().unwrap_or_else(PoisonError::into_inner) = id;
        Ok(())
    }

    /// Asks the handler of this very attempt to stop, if it runs here.
    fn ask_to_stop(&self, lease: &Lease, reason: StopReason) {
        if let Some(run) = self
            .runs()
            .get(&lease.task_id)
            .filter(|run| run.lease == *lease)
        {
            run.ask_to_stop(reason);
        }
    }

    fn stop_all(&self, reason: StopReason) {
        for run in self.runs().values() {
            run.ask_to_stop(reason);
        }
    }

    /// Drops the handlers where they stand.
    fn abort_all(&self) {
        for run in self.runs().drain().map(|(_, run)| run) {
            if let Some(handler) = run.abort.get() {
                handler.abort();
            }
            // A thread that is in the middle of something hears of it there.
            run.ask_to_stop(StopReason::Lost);
        }
    }
}

impl LocalNode for Inner {
    fn id(&self) -> NodeId {
        self.node()
    }

    fn slots(&self) -> (usize, usize) {
        let desk = self.desk();
        (desk.slots().running(), desk.slots().total())
    }

    fn has_room(&self, queue: &str, task_type: &str) -> Option<bool> {
        self.desk().slots().has_room(queue, task_type)
    }

    fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }
}

impl Worker {
    /// Registers the node and starts to work. With `is_alone`, no other process can have the store open, and what
    /// earlier ones left is taken over at once.
    pub async fn start(
        services: Arc<Services>,
        settings: WorkerSettings,
        duties: Vec<Arc<dyn Duty>>,
        is_alone: bool,
    ) -> Result<Self, StoreError> {
        let inner = Inner::start(services, settings, is_alone).await?;
        let mut loops = JoinSet::new();
        // Set by the first worker of the process; a second one is found by the bell.
        let _ = inner.services.here.set(Arc::downgrade(&inner));
        let node: Weak<dyn LocalNode> = Arc::<Inner>::downgrade(&inner);
        inner.engine().set_local_node(node);
        let mut claimers = JoinSet::new();
        claimers.spawn(claimer::run(Arc::clone(&inner)));
        answerer::start_all(&inner, &mut claimers);
        loops.spawn(reporter::run(Arc::clone(&inner)));
        // A process that starts after an outage is the first to be back: the others get their time, too.
        inner
            .engine()
            .note_touch(heart::longest_silence(&inner.settings));
        loops.spawn(heart::run(Arc::clone(&inner)));
        loops.spawn(write_now_and_then(Arc::clone(&inner)));
        if inner.settings.duties {
            let over_a_broker = inner
                .engine()
                .broker
                .as_ref()
                .map(|_| services::over_a_broker());
            for duty in duties
                .into_iter()
                .chain(over_a_broker.into_iter().flatten())
            {
                let engine = Arc::clone(&inner.services.engine);
                loops.spawn(service::run(
                    engine,
                    inner.node(),
                    duty,
                    inner.closing.clone(),
                    random::unit(),
                ));
            }
        }
        Ok(Self {
            inner,
            claimers,
            loops,
        })
    }

    /// The node's boot id.
    pub fn node(&self) -> NodeId {
        self.inner.node()
    }

    /// Tasks whose handlers run now.
    pub fn running(&self) -> usize {
        self.inner.desk().running()
    }

    /// Takes no more work. What runs goes on; [`Self::stop`] waits for it.
    pub fn begin_drain(&self) {
        self.inner.draining.cancel();
    }

    /// Drains: no new work, what runs may finish within the drain time, then handlers are told to stop, and what has
    /// not ended is handed back without a charge (R24). Hooks that still run get a few seconds.
    pub async fn stop(mut self) {
        let inner = &self.inner;
        inner.draining.cancel();
        // What a claim under way brings is in hand before anybody looks whether something is.
        let claimers = &mut self.claimers;
        tokio::join!(
            wait_for(inner, inner.settings.drain, |desk| desk.running() == 0),
            async {
                while let Some(ended) = claimers.join_next().await {
                    if ended.is_err() {
                        tracing::error!("a loop that claims has panicked");
                    }
                }
            }
        );
        inner.stop_all(StopReason::Drain);
        wait_for(inner, STOP_WAIT, |desk| desk.running() == 0).await;
        inner.dropping.store(true, Ordering::Relaxed);
        inner.stop_all(StopReason::Drain);
        wait_for(inner, LAST_REPORTS, Desk::is_clear).await;
        inner.closing.cancel();
        let ended = async { while self.loops.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_ANSWERS, ended).await.is_err() {
            tracing::warn!("a shutdown goes on without an answer of the store");
            self.loops.shutdown().await;
        }
        // Nobody beats any more: a heart that is told of a lost node would register a new one.
        if let Err(error) = within(LAST_ANSWERS, say_goodbye(inner)).await {
            tracing::warn!(%error, "the node could not say goodbye; it will be found dead");
        }
        if self.inner.desk().has_kept_slots() {
            tracing::warn!(
                "blocking handlers go on; a runtime that is dropped waits for them, unless by shutdown_background"
            );
        }
        self.inner.services.end_hooks().await;
    }
}

/// What the store still takes for running here would be charged with a crash once the node is gone: claims whose answer was
/// lost, and reports that nobody took. Nothing is claimed, started or reported any more, so all of it goes back.
async fn say_goodbye(inner: &Inner) -> Result<(), StoreError> {
    let store = &inner.engine().store;
    while store.hand_back_strays(inner.node(), &[], 0).await?.len() == bounds::MAINTENANCE_BATCH {}
    store.retire_node(inner.node()).await
}

impl Drop for Worker {
    /// Without a stop: handlers are dropped where they stand, and the node is found dead later.
    fn drop(&mut self) {
        self.inner.draining.cancel();
        self.inner.closing.cancel();
        self.inner.abort_all();
    }
}

/// Waits until the desk is as wanted, at most so long.
async fn wait_for(inner: &Inner, most: Duration, is_so: impl Fn(&Desk) -> bool) {
    let so = async {
        while !is_so(&inner.desk()) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    if tokio::time::timeout(most, so).await.is_err() {
        tracing::debug!("a shutdown goes on without waiting longer");
    }
}

/// Brings progress and log lines into the store.
async fn write_now_and_then(inner: Arc<Inner>) {
    loop {
        tokio::select! {
            () = inner.closing.cancelled() => return,
            () = inner.services.progress.wake.notified() => {}
            () = tokio::time::sleep(Duration::from_millis(500)) => {}
        }
        inner.services.progress.write(inner.engine()).await;
        inner.services.scribe.write(&*inner.engine().store).await;
    }
}

/// What the worker offers, as the settings and the registered types say.
fn plan(services: &Services, settings: &WorkerSettings) -> SlotPlan {
    let types: Vec<TypeSlots> = services
        .registry
        .types()
        .map(|kind| TypeSlots {
            name: kind.name.clone(),
            at_most: settings
                .types
                .get(&kind.name)
                .copied()
                .or(kind.settings.concurrency),
            resources: kind.settings.resources.clone(),
        })
        .collect();
    for (name, resource) in types
        .iter()
        .flat_map(|kind| kind.resources.iter().map(|resource| (&kind.name, resource)))
    {
        if !settings.resources.contains_key(resource) {
            tracing::warn!(
                task_type = name,
                resource,
                "a type asks for a resource that this worker has no limit for"
            );
        }
    }
    let mut queues = settings.queues.clone();
    if queues.is_empty() {
        let named = services
            .registry
            .types()
            .filter_map(|kind| kind.settings.queue.clone());
        let names: BTreeSet<String> = services.routing.queues().into_iter().chain(named).collect();
        queues = names.iter().map(|name| QueueSlots::shared(name)).collect();
    }
    SlotPlan {
        total: settings.slots,
        queues,
        types,
        resources: settings.resources.clone(),
    }
}
