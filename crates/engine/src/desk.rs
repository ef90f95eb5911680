//! The desk: what a node has in hand, from claim to accepted report.
//!
//! A claimed task is held until the store has taken its report, or has said that the attempt no longer counts. Reports
//! that could not be delivered stay in front and are delivered again: the store knows a repetition. The desk does no
//! work by itself; whoever drives it (the executor, or a simulation) carries out what it says.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use longhaul_domain::{Lease, Status, Task, TaskId, contract::store::Verdict};

use crate::{
    TaskInfo,
    commands::finish::Ended,
    slots::{Scope, SlotPlan, Slots},
};

/// Reports that may wait on any node: several deliveries, so that a slow one does not hold up the handlers.
const FEW_REPORTS: usize = 1_000;

/// Why a running handler should stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// A person or its parent cancelled the task.
    Cancelled,
    /// Another attempt has taken over, or the task ended otherwise: whatever this one does counts no more.
    Lost,
    /// The node shuts down.
    Drain,
}

/// What a node has for the task of a bell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForBell {
    /// A slot, which is held.
    Held,
    /// None: it does not serve the queue and type.
    NotServed,
    /// None, although other types of the queue could start.
    TypeFull,
    /// None, like any other task of the queue.
    QueueFull,
}

/// A claimed task that is now in hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    pub lease: Lease,
    pub info: Arc<TaskInfo>,
    /// An older attempt of the same task whose handler still runs here. Its lease is renewed no more, so no heartbeat
    /// will tell of its loss: whoever drives the desk asks it to stop now.
    pub replaces: Option<Lease>,
}

#[derive(Debug, Clone)]
struct Held {
    lease: Lease,
    info: Arc<TaskInfo>,
    /// Whether the handler still runs and has its slot.
    runs: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Desk {
    slots: Slots,
    /// Whether the store has been asked for as much as there is room for and has not answered.
    is_asking: bool,
    held: HashMap<TaskId, Held>,
    reports: VecDeque<Ended>,
    /// Reports that wait before nothing more is claimed.
    most_reports: usize,
    /// Slots of attempts that have ended, which something of them still needs.
    kept_slots: usize,
}

impl Desk {
    pub fn new(plan: SlotPlan) -> Self {
        let most_reports = FEW_REPORTS.max(plan.total.saturating_mul(2));
        let (held, reports) = (HashMap::new(), VecDeque::new());
        Self {
            slots: Slots::new(plan),
            is_asking: false,
            held,
            reports,
            most_reports,
            kept_slots: 0,
        }
    }

    /// What to ask the store for now: scopes with room, and how much. Asking for one may use up the room of the next,
    /// so each is asked for by itself, with [`Self::room`] looked up again.
    pub fn scopes(&self) -> Vec<Scope> {
        self.slots
            .scopes()
            .iter()
            .filter(|scope| self.room(scope) > 0)
            .cloned()
            .collect()
    }

    /// What to ask for before [`Self::scopes`] while tasks wait: the portions of the queues.
    pub fn portions(&self) -> Vec<Scope> {
        self.slots
            .portions()
            .into_iter()
            .filter(|scope| self.room(scope) > 0)
            .cloned()
            .collect()
    }

    /// The scopes that are left out of [`Self::scopes`].
    pub fn full_scopes(&self) -> Vec<Scope> {
        self.slots
            .scopes()
            .iter()
            .filter(|scope| self.room(scope) == 0)
            .cloned()
            .collect()
    }

    pub fn room(&self, scope: &Scope) -> usize {
        if self.is_crowded() {
            0
        } else {
            self.slots.room(scope)
        }
    }

    /// What runs now, and the most that may.
    pub const fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Whether so many reports wait that there is room for nothing else, until some are delivered.
    pub fn is_crowded(&self) -> bool {
        self.reports.len() > self.most_reports
    }

    /// Notes that the store is asked for all there is room for, or has answered.
    pub fn asking(&mut self, is_asking: bool) {
        self.is_asking = is_asking;
    }

    /// Holds a slot for a task that is submitted and claimed at once. Not while the store may answer with as many tasks
    /// as there are slots.
    pub fn hold_slot(&mut self, queue: &str, task_type: &str) -> bool {
        !self.is_asking && !self.is_crowded() && self.slots.hold(queue, task_type)
    }

    /// Holds a slot for a task that a bell rang for. Nobody asks the store for all that there is room for meanwhile.
    pub fn hold_for_bell(&mut self, queue: &str, task_type: &str) -> ForBell {
        match self.slots.has_room(queue, task_type) {
            None => ForBell::NotServed,
            Some(true) if !self.is_crowded() && self.slots.hold(queue, task_type) => ForBell::Held,
            Some(_) if self.room_in_queue(queue) == 0 => ForBell::QueueFull,
            Some(_) => ForBell::TypeFull,
        }
    }

    /// Keeps the slot of an attempt that has just ended, whether or not there is room for others: something of it still runs.
    pub fn keep_slot(&mut self, queue: &str, task_type: &str) {
        self.slots.occupy(queue, task_type);
        self.kept_slots += 1;
    }

    /// What a slot was kept for is over.
    pub fn release_kept_slot(&mut self, queue: &str, task_type: &str) {
        self.slots.free(queue, task_type);
        self.kept_slots -= 1;
    }

    /// Whether something of an attempt that has ended still runs.
    pub const fn has_kept_slots(&self) -> bool {
        self.kept_slots > 0
    }

    /// How many tasks of this queue could start now.
    pub fn room_in_queue(&self, queue: &str) -> usize {
        if self.is_crowded() {
            0
        } else {
            self.slots.room_in_queue(queue)
        }
    }

    /// Gives a held slot back: its task is about to be taken in hand, or was not claimed.
    pub fn release_slot(&mut self, queue: &str, task_type: &str) {
        self.slots.free(queue, task_type);
    }

    /// Takes a claimed task in hand.
    pub fn take(&mut self, task: &Task) -> Option<Taken> {
        let lease = task.lease()?;
        self.slots.take(task);
        let info = Arc::new(TaskInfo::of(task));
        let held = Held {
            lease,
            info: Arc::clone(&info),
            runs: true,
        };
        let before = self.held.insert(task.id, held);
        if let Some(before) = &before {
            self.give_up_slot(before);
        }
        let replaces = before
            .filter(|before| before.runs)
            .map(|before| before.lease);
        Some(Taken {
            lease,
            info,
            replaces,
        })
    }

    /// The handler has come to its end: its slot is free, and its report is to be delivered. `false` when the attempt
    /// no longer counts and there is nobody to tell.
    pub fn end(&mut self, ended: Ended) -> bool {
        let lease = ended.report.lease;
        let Some(held) = self
            .held
            .get_mut(&lease.task_id)
            .filter(|held| held.lease == lease)
        else {
            return false;
        };
        if std::mem::replace(&mut held.runs, false) {
            self.slots.free(&held.info.queue, &held.info.task_type);
        }
        self.reports.push_back(ended);
        true
    }

    /// Reports to deliver together, at most so many.
    pub fn next_reports(&mut self, most: usize) -> Vec<Ended> {
        let count = self.reports.len().min(most);
        self.reports.drain(..count).collect()
    }

    /// Reports that nobody has answered go back to the front, in their order.
    pub fn undelivered(&mut self, reports: Vec<Ended>) {
        for report in reports.into_iter().rev() {
            self.reports.push_front(report);
        }
    }

    /// The store has answered: the tasks are out of our hands.
    pub fn delivered(&mut self, reports: &[Ended]) {
        for ended in reports {
            self.drop_lease(&ended.report.lease);
        }
    }

    /// Everything whose lease must be renewed.
    pub fn leases(&self) -> Vec<Lease> {
        let mut leases: Vec<Lease> = self.held.values().map(|held| held.lease).collect();
        leases.sort_by_key(|lease| lease.task_id);
        leases
    }

    /// A heartbeat's answer: the handlers that should stop, and why. They keep their slots until they have stopped.
    pub fn beaten(&mut self, answers: &[(Lease, Verdict)]) -> Vec<(Lease, StopReason)> {
        let mut stops = Vec::new();
        for (lease, verdict) in answers {
            let reason = match verdict {
                Verdict::Applied(_) => continue,
                Verdict::Stale(Status::Cancelled) => StopReason::Cancelled,
                Verdict::Stale(_) | Verdict::Repeated(_) | Verdict::Missing => StopReason::Lost,
            };
            if self
                .held
                .get(&lease.task_id)
                .is_some_and(|held| held.lease == *lease && held.runs)
            {
                stops.push((*lease, reason));
            }
        }
        stops
    }

    /// The attempt is out of our hands: its end was accepted, or it was lost and there is nothing to report.
    pub fn drop_lease(&mut self, lease: &Lease) {
        if self
            .held
            .get(&lease.task_id)
            .is_some_and(|held| held.lease == *lease)
            && let Some(held) = self.held.remove(&lease.task_id)
        {
            self.give_up_slot(&held);
        }
    }

    /// Tasks whose handlers run, or for which a slot is held.
    pub fn running(&self) -> usize {
        self.slots.running() - self.kept_slots
    }

    /// Reports that wait to be delivered.
    pub fn waiting_reports(&self) -> usize {
        self.reports.len()
    }

    /// Whether nothing is in hand.
    pub fn is_clear(&self) -> bool {
        self.held.is_empty()
    }

    fn give_up_slot(&mut self, held: &Held) {
        if held.runs {
            self.slots.free(&held.info.queue, &held.info.task_type);
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_domain::{
        Json, LeaseToken, NewTask, NodeId, TaskIdSequence, Timestamp,
        contract::store::{Outcome, Report},
        lifecycle::{claim, submit},
    };

    use super::*;
    use crate::slots::{QueueSlots, TypeSlots};

    fn desk() -> Desk {
        let types = vec![TypeSlots {
            name: "t".to_owned(),
            at_most: None,
            resources: Vec::new(),
        }];
        Desk::new(SlotPlan {
            total: 2,
            queues: vec![QueueSlots::shared("q")],
            types,
            ..SlotPlan::default()
        })
    }

    /// The task in its attempt of this number.
    fn claimed(attempt: u32) -> Task {
        let now = Timestamp::from_micros(1);
        let new = NewTask::new("ann", "t", "q", Json::trusted("1".to_owned()));
        let id = TaskIdSequence::default().next_id(now, 1);
        let task = Task {
            attempt: attempt - 1,
            ..submit::decide(&new, id, now).unwrap().after
        };
        let token = LeaseToken(uuid::Uuid::from_u128(attempt.into()));
        claim::decide(&task, NodeId(uuid::Uuid::nil()), "host", token, now)
            .unwrap()
            .after
    }

    fn ended(task: &Task) -> Ended {
        let report = Report {
            lease: task.lease().unwrap(),
            outcome: Outcome::HandedBack,
        };
        Ended::new(task, Arc::new(TaskInfo::of(task)), report)
    }

    #[test]
    fn no_slot_is_held_while_the_store_may_answer_with_as_many_tasks() {
        let mut desk = desk();
        desk.asking(true);
        assert!(!desk.hold_slot("q", "t"));
        desk.asking(false);
        assert!(desk.hold_slot("q", "t") && desk.hold_slot("q", "t") && !desk.hold_slot("q", "t"));
        desk.release_slot("q", "t");
        assert_eq!(desk.room(&desk.scopes()[0]), 1);
    }

    #[test]
    fn an_older_attempt_that_still_runs_here_is_named_when_the_task_is_claimed_again() {
        let (mut desk, first, second) = (desk(), claimed(1), claimed(2));
        assert_eq!(desk.take(&first).unwrap().replaces, None);
        let taken = desk.take(&second).unwrap();
        assert_eq!(
            (Some(taken.lease), taken.replaces),
            (second.lease(), first.lease())
        );
        assert_eq!((desk.running(), desk.leases()), (1, vec![taken.lease]));
        assert!(
            !desk.end(ended(&first)),
            "nobody is told of the older one's end"
        );
        assert_eq!((desk.running(), desk.waiting_reports()), (1, 0));
    }

    #[test]
    fn there_is_no_room_while_too_many_reports_wait() {
        let mut desk = desk();
        let tasks: Vec<Task> = (0..=FEW_REPORTS).map(|_| claimed(1)).collect();
        for task in &tasks {
            assert_eq!((desk.scopes().len(), desk.full_scopes().len()), (1, 0));
            desk.take(task).unwrap();
            assert!(desk.end(ended(task)));
        }
        assert_eq!((desk.scopes().len(), desk.full_scopes().len()), (0, 1));
        let delivered = desk.next_reports(1);
        desk.delivered(&delivered);
        assert_eq!(desk.room(&desk.scopes()[0]), 2);
    }

    #[test]
    fn an_older_attempt_that_has_ended_need_not_be_stopped() {
        let (mut desk, first, second) = (desk(), claimed(1), claimed(2));
        desk.take(&first).unwrap();
        assert!(desk.end(ended(&first)));
        assert_eq!(desk.take(&second).unwrap().replaces, None);
        assert_eq!((desk.running(), desk.waiting_reports()), (1, 1));
    }
}
