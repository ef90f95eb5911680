//! The in-flight set: the tasks of a node, from claim to accepted report.
//!
//! A claimed task stays in flight until the store has accepted its report, or has said that the
//! attempt no longer counts. Reports that could not be delivered go back to the front and are
//! delivered again; the store recognises a repetition. The set does nothing by itself: its driver
//! (the node's loops, or the simulation) carries out what it says.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use longhaul_domain::{Lease, Status, TaskId, TaskRecord, contract::store::Verdict};
use longhaul_engine::{TaskInfo, commands::finish::EndedAttempt};
use longhaul_sdk::StopReason;

use crate::slots::{Room, Scope, SlotPlan, Slots};

/// Reports that may wait on any node: several deliveries, so that a slow one does not hold up the
/// handlers.
const MIN_REPORTS: usize = 1_000;

/// Whether a node has a slot for the task of a hint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HintSlot {
    /// It has one, which is now reserved.
    Reserved,
    /// It does not serve the queue and type.
    NotServed,
    /// It has none for this type, but other types of the queue could start.
    TypeFull,
    /// It has none for any task of the queue.
    QueueFull,
}

/// A claimed task that is now in flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The lease of the claim.
    pub lease: Lease,
    /// The identity of the task.
    pub info: Arc<TaskInfo>,
    /// An older attempt of the same task whose handler still runs here. Its lease is no longer
    /// renewed, so no heartbeat will report its loss: the driver stops it now.
    pub replaces: Option<Lease>,
}

#[derive(Debug, Clone)]
struct ClaimedTask {
    lease: Lease,
    info: Arc<TaskInfo>,
    /// Whether the handler still runs and has its slot.
    runs: bool,
}

/// See the module.
#[derive(Debug)]
pub struct InFlight {
    slots: Slots,
    /// Whether the store has been asked for as many tasks as there are slots, and has not answered.
    is_asking: bool,
    tasks: HashMap<TaskId, ClaimedTask>,
    /// Reports that wait to be delivered.
    reports: VecDeque<EndedAttempt>,
    /// With more waiting reports than this, nothing is claimed.
    max_reports: usize,
    /// Slots of ended attempts whose threads still run.
    orphaned_slots: usize,
}

impl InFlight {
    /// An empty set with the slots of this plan.
    pub fn new(plan: SlotPlan) -> Self {
        let max_reports = MIN_REPORTS.max(plan.total.saturating_mul(2));
        Self {
            slots: Slots::new(plan),
            is_asking: false,
            tasks: HashMap::new(),
            reports: VecDeque::new(),
            max_reports,
            orphaned_slots: 0,
        }
    }

    /// The scopes with room, to ask the store for now. A claim in one may use up the room of the
    /// next, so each is asked for by itself, after [`Self::room`] was read again.
    pub fn open_scopes(&self) -> Vec<Scope> {
        let scopes = self.slots.scopes().iter();
        scopes
            .filter(|scope| self.room(scope) > 0)
            .cloned()
            .collect()
    }

    /// The fair shares of the queues with room, to ask for before [`Self::open_scopes`] while tasks
    /// wait.
    pub fn open_fair_shares(&self) -> Vec<Scope> {
        let shares = self.slots.fair_shares().into_iter();
        shares
            .filter(|scope| self.room(scope) > 0)
            .cloned()
            .collect()
    }

    /// The scopes without room.
    pub fn full_scopes(&self) -> Vec<Scope> {
        let scopes = self.slots.scopes().iter();
        scopes
            .filter(|scope| self.room(scope) == 0)
            .cloned()
            .collect()
    }

    /// How many tasks may be claimed in a scope now.
    pub fn room(&self, scope: &Scope) -> usize {
        if self.is_crowded() {
            0
        } else {
            self.slots.room(scope)
        }
    }

    /// How many tasks of this queue could start now.
    pub fn room_in_queue(&self, queue: &str) -> usize {
        if self.is_crowded() {
            0
        } else {
            self.slots.room_in_queue(queue)
        }
    }

    /// The used and free slots.
    pub const fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Whether so many reports wait that nothing more is claimed.
    pub fn is_crowded(&self) -> bool {
        self.reports.len() > self.max_reports
    }

    /// Notes that the store is asked for as many tasks as there are slots, or has answered.
    pub fn asking(&mut self, is_asking: bool) {
        self.is_asking = is_asking;
    }

    /// Reserves a slot for a task that is submitted and claimed at once. Fails while the store may
    /// answer with as many tasks as there are slots.
    pub fn reserve_slot(&mut self, queue: &str, task_type: &str) -> bool {
        !self.is_asking && !self.is_crowded() && self.slots.reserve(queue, task_type)
    }

    /// Reserves a slot for the task of a hint. The driver does not ask the store for tasks at the
    /// same time.
    pub fn reserve_for_hint(&mut self, queue: &str, task_type: &str) -> HintSlot {
        if self.slots.room_for(queue, task_type) == Room::NotServed {
            return HintSlot::NotServed;
        }
        if !self.is_crowded() && self.slots.reserve(queue, task_type) {
            return HintSlot::Reserved;
        }

        if self.room_in_queue(queue) == 0 {
            HintSlot::QueueFull
        } else {
            HintSlot::TypeFull
        }
    }

    /// Returns a reserved slot: its task was not claimed, or is about to be taken.
    pub fn release_slot(&mut self, queue: &str, task_type: &str) {
        self.slots.free(queue, task_type);
    }

    /// Occupies a slot for an attempt that has ended but whose thread still runs, even where no
    /// slot is free.
    pub fn orphan_slot(&mut self, queue: &str, task_type: &str) {
        self.slots.occupy(queue, task_type);
        self.orphaned_slots += 1;
    }

    /// The orphaned thread has ended.
    pub fn release_orphaned_slot(&mut self, queue: &str, task_type: &str) {
        self.slots.free(queue, task_type);
        self.orphaned_slots -= 1;
    }

    /// Whether threads of ended attempts still run.
    pub const fn has_orphaned_slots(&self) -> bool {
        self.orphaned_slots > 0
    }

    /// Takes a claimed task. `None` when the record is not that of a claim.
    pub fn take(&mut self, task: &TaskRecord) -> Option<Taken> {
        let lease = task.lease()?;
        self.slots.occupy(&task.queue, &task.task_type);

        let info = Arc::new(TaskInfo::of(task));
        let claimed = ClaimedTask {
            lease,
            info: Arc::clone(&info),
            runs: true,
        };
        let before = self.tasks.insert(task.id, claimed);

        let mut replaces = None;
        if let Some(before) = before
            && before.runs
        {
            self.slots.free(&before.info.queue, &before.info.task_type);
            replaces = Some(before.lease);
        }

        Some(Taken {
            lease,
            info,
            replaces,
        })
    }

    /// The handler has ended: its slot is free, and its report waits for delivery. Returns `false`
    /// when the attempt no longer counts and there is nothing to report.
    pub fn add_report(&mut self, ended: EndedAttempt) -> bool {
        let lease = ended.report.lease;
        let Some(task) = self.tasks.get_mut(&lease.task_id) else {
            return false;
        };
        if task.lease != lease {
            return false;
        }

        if std::mem::replace(&mut task.runs, false) {
            self.slots.free(&task.info.queue, &task.info.task_type);
        }
        self.reports.push_back(ended);
        true
    }

    /// Up to `most` reports to deliver together.
    pub fn next_reports(&mut self, most: usize) -> Vec<EndedAttempt> {
        let count = self.reports.len().min(most);
        self.reports.drain(..count).collect()
    }

    /// Puts undelivered reports back to the front, in their order.
    pub fn undelivered(&mut self, reports: Vec<EndedAttempt>) {
        for report in reports.into_iter().rev() {
            self.reports.push_front(report);
        }
    }

    /// The store has answered the reports: their tasks are no longer in flight.
    pub fn delivered(&mut self, reports: &[EndedAttempt]) {
        for ended in reports {
            self.drop_lease(&ended.report.lease);
        }
    }

    /// All leases that must be renewed.
    pub fn leases(&self) -> Vec<Lease> {
        let mut leases: Vec<Lease> = self.tasks.values().map(|task| task.lease).collect();
        leases.sort_by_key(|lease| lease.task_id);
        leases
    }

    /// Takes the answers of a heartbeat. Returns the handlers that should stop, and why. They keep
    /// their slots until they have stopped.
    pub fn heartbeat_answered(&self, answers: &[(Lease, Verdict)]) -> Vec<(Lease, StopReason)> {
        let mut stops = Vec::new();
        for (lease, verdict) in answers {
            let reason = match verdict {
                Verdict::Applied(_) => continue,
                Verdict::Stale(Status::Cancelled) => StopReason::Cancelled,
                Verdict::Stale(_) | Verdict::Repeated(_) | Verdict::Missing => StopReason::Lost,
            };

            if let Some(task) = self.tasks.get(&lease.task_id)
                && task.lease == *lease
                && task.runs
            {
                stops.push((*lease, reason));
            }
        }

        stops
    }

    /// The attempt is no longer in flight: its end was accepted, or it was lost.
    pub fn drop_lease(&mut self, lease: &Lease) {
        let Some(task) = self.tasks.get(&lease.task_id) else {
            return;
        };
        if task.lease != *lease {
            return;
        }

        if task.runs {
            self.slots.free(&task.info.queue, &task.info.task_type);
        }
        self.tasks.remove(&lease.task_id);
    }

    /// Tasks whose handlers run, or for which a slot is reserved.
    pub fn running_or_reserved(&self) -> usize {
        self.slots.occupied() - self.orphaned_slots
    }

    /// Reports that wait to be delivered.
    pub fn waiting_reports(&self) -> usize {
        self.reports.len()
    }

    /// Whether no task is in flight.
    pub fn is_clear(&self) -> bool {
        self.tasks.is_empty()
    }
}

#[cfg(test)]
mod tests;
