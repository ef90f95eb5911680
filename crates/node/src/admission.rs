//! Admission: the one place where slots are taken for tasks that are about to be claimed.
//!
//! There are three ways, and they never count on the same slot:
//!
//! - [`Node::claim_scope`] asks the store for as many tasks as a scope has free slots. The claimer,
//!   the claim by host affinity and the manual node do that. It runs alone.
//! - [`ReservedSlots`] reserves a slot for each hinted task, which is then claimed by its id. The
//!   queue consumers do that beside each other, and the claimer for hints that name their tasks.
//! - [`EagerSlot`] reserves one slot for a task that is submitted and claimed in one transaction.
//!   It is refused while a claim for a whole scope is under way.
//!
//! Whatever the store returns becomes [`ClaimedTasks`].

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::task::Poll;

use longhaul_domain::{
    NewTask, QueueName, StoreError, TaskId, TaskRecord, bounds,
    contract::store::{ClaimNamed, ClaimRequest},
};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::{
    claimed::ClaimedTasks,
    deadlines::{claim_timeout, within},
    in_flight::{HintSlot, InFlight},
    node::Node,
    slots::{Scope, SlotPlan},
};

/// The tasks in flight with their slots, and the locks under which slots are taken.
#[derive(Debug)]
pub(crate) struct Admission {
    in_flight: Mutex<InFlight>,
    /// A claim for all free slots of a scope has this alone; reservations of single slots share it.
    /// Otherwise both could count on the same slot.
    slots: RwLock<()>,
    /// Whether an eager start is under way. There is one at a time.
    has_eager_start: AtomicBool,
}

impl Admission {
    pub(crate) fn new(plan: SlotPlan) -> Self {
        Self {
            in_flight: Mutex::new(InFlight::new(plan)),
            slots: RwLock::new(()),
            has_eager_start: AtomicBool::new(false),
        }
    }

    pub(crate) fn in_flight(&self) -> MutexGuard<'_, InFlight> {
        // Never held across an await: each caller reads or changes the set at once.
        self.in_flight.lock()
    }

    /// Waits until no claim for all free slots is under way. None starts while the guard lives.
    pub(crate) async fn share_slots(&self) -> RwLockReadGuard<'_, ()> {
        // Readers share it, so that the consumers reserve beside each other.
        self.slots.read().await
    }
}

/// Which tasks a claim for a scope asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ClaimFor {
    AnyHost,
    /// Tasks of a dead node that are reserved for the host of this one.
    ThisHost,
}

/// How a claim for one scope ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScopeClaim {
    pub(crate) asked_for: usize,
    pub(crate) claimed: usize,
}

impl Node {
    /// Claims as many tasks as the scope has free slots and adds them to `batch`. What the batch
    /// has already is started while the store works. Returns `None` if there is no free slot.
    pub(crate) async fn claim_scope(
        &self,
        scope: &Scope,
        claim_for: ClaimFor,
        batch: &mut ClaimedTasks,
    ) -> Result<Option<ScopeClaim>, StoreError> {
        // From here until the batch has the tasks no other claim takes a slot.
        let _alone = self.all_slots(batch).await;
        let _asking = Asking::new(self);

        let limit = self.in_flight().room(scope).min(bounds::CLAIM_BATCH);
        if limit == 0 || self.shutdown.is_draining() {
            return Ok(None);
        }

        let request = self.claim_request(scope.queues.clone(), scope.task_types.clone(), limit);
        let claim = within(
            claim_timeout(&self.settings),
            self.send_claim(claim_for, &request),
        );

        // The first poll sends the request. Then the batch starts while the store works.
        let mut claim = pin!(claim);
        let first_poll = futures::poll!(claim.as_mut());
        batch.start();
        let tasks = match first_poll {
            Poll::Ready(answer) => answer?,
            Poll::Pending => claim.await?,
        };

        let claimed = tasks.len();
        batch.add(tasks);
        Ok(Some(ScopeClaim {
            asked_for: limit,
            claimed,
        }))
    }

    /// The right to all free slots. If it has to wait, the batch starts first.
    async fn all_slots(&self, batch: &mut ClaimedTasks) -> RwLockWriteGuard<'_, ()> {
        // Tried first: usually it is free, and the batch then starts while the store works.
        match self.admission.slots.try_write() {
            Ok(alone) => alone,
            Err(_) => {
                batch.start();
                self.admission.slots.write().await
            }
        }
    }

    async fn send_claim(
        &self,
        claim_for: ClaimFor,
        request: &ClaimRequest,
    ) -> Result<Vec<TaskRecord>, StoreError> {
        let engine = self.engine();
        match claim_for {
            ClaimFor::AnyHost => engine.claim(request).await,
            ClaimFor::ThisHost => engine.claim_host_affinity(request).await,
        }
    }

    /// Claims those of the tasks that can be claimed and whose types are served here. The caller
    /// has reserved a slot for each.
    pub(crate) async fn claim_by_id(
        &self,
        ids: BTreeSet<TaskId>,
    ) -> Result<Vec<TaskRecord>, StoreError> {
        let task_types = {
            let in_flight = self.in_flight();
            in_flight.slots().task_types().map(str::to_owned).collect()
        };
        let request = ClaimNamed {
            node_id: self.id(),
            host: self.settings.host.clone(),
            task_types,
            ids: ids.into_iter().collect(),
        };

        let claim = self.engine().claim_named(&request);
        within(claim_timeout(&self.settings), claim).await
    }
}

/// Marks a claim for all free slots as under way while it lives. No eager start takes a slot then.
struct Asking<'a>(&'a Node);

impl<'a> Asking<'a> {
    fn new(node: &'a Node) -> Self {
        node.in_flight().asking(true);
        Self(node)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.in_flight().asking(false);
    }
}

/// Slots that are reserved for hinted tasks until those are in flight or were not claimed.
pub(crate) struct ReservedSlots {
    node: Arc<Node>,
    slots: Vec<(QueueName, String)>,
}

impl ReservedSlots {
    pub(crate) fn new(node: &Arc<Node>) -> Self {
        Self {
            node: Arc::clone(node),
            slots: Vec::new(),
        }
    }

    /// Reserves one more slot, if there is one.
    pub(crate) fn reserve(
        &mut self,
        in_flight: &mut InFlight,
        queue: &QueueName,
        task_type: &str,
    ) -> HintSlot {
        let slot = in_flight.reserve_for_hint(queue, task_type);
        if slot == HintSlot::Reserved {
            self.slots.push((queue.clone(), task_type.to_owned()));
        }
        slot
    }
}

impl Drop for ReservedSlots {
    fn drop(&mut self) {
        if self.slots.is_empty() {
            return;
        }

        let mut in_flight = self.node.in_flight();
        for (queue, task_type) in &self.slots {
            in_flight.release_slot(queue, task_type);
        }

        // The loops that wake up take the lock.
        drop(in_flight);
        self.node.wakeups.notify_slot();
    }
}

/// A slot for a task that is submitted and claimed in one transaction, and the right to do so.
pub(crate) struct EagerSlot {
    pub(crate) node: Arc<Node>,
    pub(crate) queue: QueueName,
    pub(crate) task_type: String,
}

impl EagerSlot {
    /// Takes a slot, if one is free and no other eager start is under way.
    pub(crate) fn take(node: &Arc<Node>, task: &NewTask) -> Option<Self> {
        // The swap comes before the slot, so that of two submits one gets both.
        let eager = &node.admission.has_eager_start;
        if node.shutdown.is_draining() || eager.swap(true, Ordering::AcqRel) {
            return None;
        }
        if !node.in_flight().reserve_slot(&task.queue, &task.task_type) {
            eager.store(false, Ordering::Release);
            return None;
        }

        Some(Self {
            node: Arc::clone(node),
            queue: task.queue.clone(),
            task_type: task.task_type.to_string(),
        })
    }
}

impl Drop for EagerSlot {
    fn drop(&mut self) {
        // The slot first: the next eager start and the loops that wake up must find it free.
        let mut in_flight = self.node.in_flight();
        in_flight.release_slot(&self.queue, &self.task_type);
        drop(in_flight);

        let eager = &self.node.admission.has_eager_start;
        eager.store(false, Ordering::Release);
        self.node.wakeups.notify_slot();
    }
}
