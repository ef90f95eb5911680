//! A process that runs tasks. It drives the in-flight set step by step, as the node's loops do.
//!
//! A claim and a delivery are two steps each, the call and its answer, so that other steps of the
//! process can come in between.

use std::collections::HashMap;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::time::Duration;

use longhaul_domain::{
    Lease, NodeId, StoreError, TaskId, TaskRecord, Timestamp, bounds,
    contract::store::{AttemptEnd, AttemptReport, ClaimNamed, ClaimRequest},
};
use longhaul_engine::{Engine, TaskInfo, commands::finish::EndedAttempt};
use longhaul_node::{
    PollSettings,
    in_flight::InFlight,
    maintenance::job::{self, MaintenanceJob},
    pace::Pace,
    slots::{ServedQueue, SlotPlan, TypeSlots},
};
use longhaul_sdk::StopReason;
use longhaul_testkit::names::queue_name;
use tokio_util::sync::CancellationToken;

use crate::bugs::PlantedBug;
use crate::coverage::Situation;
use crate::dice::Dice;
use crate::outside::{Hints, SilentBus};
use crate::script::{self, QUEUES, TYPES};
use crate::store::{SimStore, ready};

const HEARTBEAT_MS: u64 = 5_000;
const STRAYS_EVERY_MS: u64 = 15_000;
const STRAY_AGE_MS: u64 = 60_000;
const REST_MS: u64 = 500;
/// How soon a process claims again after it found work, unless a hint arrives. A real node claims
/// after a few milliseconds; a simulated step takes longer, so every step would be a claim.
const AFTER_WORK_MS: u64 = 1_000;
const BATCH: usize = 500;
/// How long a drain may take before the process ends with tasks still in flight.
const DRAIN_MS: u64 = 30_000;

/// A running handler.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) task: TaskRecord,
    info: Arc<TaskInfo>,
    pub(crate) lease: Lease,
    /// Steps so far.
    pub(crate) steps: u64,
    pub(crate) stop: Option<StopReason>,
    /// False once a newer attempt of the same task has replaced it in the process.
    is_known: bool,
}

/// An action that a process can take next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Register,
    Claim,
    ClaimAnswer,
    Handler(usize),
    Deliver,
    DeliverAnswer,
    Beat,
    MaintenanceJob(usize),
    Leave,
}

/// The timers of the node's loops, by the simulation's clock.
#[derive(Debug, Clone, Copy, Default)]
struct Timers {
    claim_at: Timestamp,
    heartbeat_at: Timestamp,
    strays_at: Timestamp,
    deliver_at: Timestamp,
    leave_at: Option<Timestamp>,
    /// A paused process does nothing before this time.
    awake_at: Timestamp,
}

/// Hints that a process remembers.
const REMEMBERED_HINTS: usize = 8;

#[derive(Debug)]
pub(crate) struct SimNode {
    pub(crate) name: String,
    pub(crate) id: NodeId,
    pub(crate) engine: Arc<Engine>,
    store: Arc<SimStore>,
    hint: Arc<AtomicBool>,
    is_registered: bool,
    in_flight: InFlight,
    runs: Vec<Run>,
    pace: Pace,
    /// Every slot is taken, so the process claims again only when a handler ends.
    waits_for_slot: bool,
    timers: Timers,
    maintenance: Vec<(Arc<dyn MaintenanceJob>, Timestamp)>,
    claim: Option<Result<Vec<TaskRecord>, StoreError>>,
    /// The last hints that were used. Some arrive again.
    remembered: Vec<TaskId>,
    delivery: Option<(Vec<EndedAttempt>, Result<(), StoreError>)>,
}

impl SimNode {
    pub(crate) fn new(
        name: String,
        id: NodeId,
        store: &Arc<SimStore>,
        hints: &Arc<Hints>,
        maintenance: &[Arc<dyn MaintenanceJob>],
        dice: &mut Dice,
    ) -> Self {
        let now = store.time();
        let timers = Timers {
            heartbeat_at: now.plus_ms(HEARTBEAT_MS),
            strays_at: now.plus_ms(STRAYS_EVERY_MS),
            ..Timers::default()
        };

        Self {
            engine: Engine::new(
                Arc::<SimStore>::clone(store),
                Arc::new(SilentBus),
                Arc::<Hints>::clone(hints),
            ),
            hint: hints.of(&name),
            name,
            id,
            store: Arc::clone(store),
            is_registered: false,
            in_flight: InFlight::new(plan(dice)),
            runs: Vec::new(),
            pace: Pace::new(PollSettings {
                least: Duration::from_secs(2),
                most: Duration::from_secs(15),
            }),
            waits_for_slot: false,
            timers,
            maintenance: maintenance
                .iter()
                .map(|job| (Arc::clone(job), now))
                .collect(),
            claim: None,
            remembered: Vec::new(),
            delivery: None,
        }
    }

    /// Pauses the process. Its timers keep running, and so do the other processes.
    pub(crate) fn pause(&mut self, ms: u64) {
        self.timers.awake_at = self.store.time().plus_ms(ms);
    }

    pub(crate) fn wake(&mut self) {
        self.timers.awake_at = Timestamp::default();
    }

    /// Shuts the process down: it claims no more and asks its handlers to stop.
    pub(crate) fn drain(&mut self) {
        if self.timers.leave_at.is_none() {
            self.timers.leave_at = Some(self.store.time().plus_ms(DRAIN_MS));
            self.stop_all(StopReason::Drain);
        }
    }

    /// A change concerns running handlers, so the next heartbeat is sent at once.
    pub(crate) fn heartbeat_now(&mut self) {
        self.timers.heartbeat_at = self.store.time();
    }

    /// Whether the process has nothing in flight, in a claim or in a delivery.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_clear()
            && self.runs.is_empty()
            && self.claim.is_none()
            && self.delivery.is_none()
    }

    /// When the next timer fires.
    pub(crate) fn next_timer(&self) -> Timestamp {
        let job = self
            .maintenance
            .iter()
            .map(|(_, at)| *at)
            .min()
            .unwrap_or_default();
        self.timers.claim_at.min(self.timers.heartbeat_at).min(job)
    }

    /// The actions that the process could take now, in no particular order.
    pub(crate) fn actions(&self, now: Timestamp) -> Vec<Action> {
        if now < self.timers.awake_at {
            return Vec::new();
        }
        if !self.is_registered {
            return vec![Action::Register];
        }

        let mut actions = Vec::new();
        for (index, run) in self.runs.iter().enumerate() {
            if script::is_ready(run, now) {
                actions.push(Action::Handler(index));
            }
        }

        let looks = !self.waits_for_slot
            && (self.hint.load(Ordering::Relaxed) || now >= self.timers.claim_at);
        let drains = self.timers.leave_at.is_some();
        match &self.claim {
            Some(_) => actions.push(Action::ClaimAnswer),
            None if looks && !drains => actions.push(Action::Claim),
            None => {}
        }

        match &self.delivery {
            Some(_) => actions.push(Action::DeliverAnswer),
            None if self.in_flight.waiting_reports() > 0 && now >= self.timers.deliver_at => {
                actions.push(Action::Deliver)
            }
            None => {}
        }

        if now >= self.timers.heartbeat_at {
            actions.push(Action::Beat);
        }
        for (index, (_, at)) in self.maintenance.iter().enumerate() {
            if now >= *at {
                actions.push(Action::MaintenanceJob(index));
            }
        }
        if let Some(leave_at) = self.timers.leave_at
            && (self.is_idle() || now >= leave_at)
        {
            actions.push(Action::Leave);
        }

        actions
    }

    /// Takes one action. Returns true when the process has ended and has to be replaced.
    pub(crate) fn act(&mut self, action: Action, dice: &mut Dice) -> bool {
        match action {
            Action::Register => self.register(),
            Action::Claim => self.claim(dice),
            Action::ClaimAnswer => self.take_claimed(),
            Action::Handler(index) => self.step_handler(index, dice),
            Action::Deliver => self.deliver(),
            Action::DeliverAnswer => self.settle_delivery(),
            Action::Beat => self.beat(dice),
            Action::MaintenanceJob(index) => self.run_maintenance_job(index),
            Action::Leave => {
                let _ = ready(self.engine.leases().retire_node(self.id));
                return true;
            }
        }

        false
    }

    fn register(&mut self) {
        match ready(
            self.engine
                .leases()
                .register_node(self.id, &self.name, "host", None),
        ) {
            Ok(()) => self.is_registered = true,
            // The node of this id is dead, so the process takes another id.
            Err(StoreError::NodeLost) => {
                self.id = NodeId(uuid::Uuid::from_u128(self.id.0.as_u128() + 1))
            }
            Err(_) => {}
        }
    }

    fn claim(&mut self, dice: &mut Dice) {
        self.hint.store(false, Ordering::Relaxed);
        let scopes = self.in_flight.open_scopes();
        if scopes.is_empty() {
            self.waits_for_slot = true;
            return;
        }

        let scope = &scopes[dice.below(scopes.len())];
        let request = ClaimRequest {
            node_id: self.id,
            host: "host".to_owned(),
            limit: self.in_flight.room(scope).min(bounds::CLAIM_BATCH),
            queues: scope.queues.clone(),
            task_types: scope.task_types.clone(),
        };

        let answer = match self.pick_hinted(&request, dice) {
            ids if ids.is_empty() => ready(self.engine.claim(&request)),
            ids => self.claim_by_name(&request, ids),
        };

        if answer.as_ref().is_ok_and(Vec::is_empty) {
            self.wait_for_work(&request, dice);
        } else {
            self.claim = Some(answer);
        }
    }

    /// Claims again after the idle pause, or when the next task is due if that is earlier.
    fn wait_for_work(&mut self, request: &ClaimRequest, dice: &mut Dice) {
        let pause = self.pace.idle(dice.unit());
        let pause_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);

        let engine = &self.engine;
        let due = ready(
            engine
                .queues()
                .next_due_at(&request.queues, &request.task_types),
        );
        let now = self.store.time();
        let due_ms = match due {
            Ok(Some(due)) => due.micros_since(now) / 1_000 + 1,
            Ok(None) | Err(_) => u64::MAX,
        };

        self.timers.claim_at = now.plus_ms(pause_ms.min(due_ms));
        self.store.history().saw(Situation::EmptyClaim);
    }

    /// Hints for waiting tasks, some of which are lost, and some earlier hints again.
    fn pick_hinted(&mut self, request: &ClaimRequest, dice: &mut Dice) -> Vec<TaskId> {
        if dice.one_in(2) {
            return Vec::new();
        }

        let mut ids = self.remembered.clone();
        ids.retain(|_| dice.one_in(3));

        for queue in &request.queues {
            let due = ready(self.engine.queues().list_due(queue, request.limit));
            for hint in due.unwrap_or_default() {
                let is_lost = dice.one_in(5);
                if !is_lost {
                    ids.push(hint.task_id);
                }
            }
        }
        ids.truncate(request.limit);

        self.remembered.extend(&ids);
        let old = self.remembered.len().saturating_sub(REMEMBERED_HINTS);
        self.remembered.drain(..old);

        ids
    }

    fn claim_by_name(
        &self,
        request: &ClaimRequest,
        ids: Vec<TaskId>,
    ) -> Result<Vec<TaskRecord>, StoreError> {
        let hinted = ids.len();
        let named = ClaimNamed {
            node_id: request.node_id,
            host: request.host.clone(),
            task_types: request.task_types.clone(),
            ids,
        };

        let answer = ready(self.engine.claim_named(&named));
        let claimed = answer.as_ref().map_or(hinted, Vec::len);
        if claimed > 0 {
            self.store.history().saw(Situation::ClaimByName);
        }
        if claimed < hinted {
            self.store.history().saw(Situation::StaleHint);
        }

        answer
    }

    fn take_claimed(&mut self) {
        let Some(answer) = self.claim.take() else {
            return;
        };
        self.pace.found();
        let now = self.store.time();

        match answer {
            Ok(tasks) => {
                self.timers.claim_at = now.plus_ms(AFTER_WORK_MS);
                tasks.into_iter().for_each(|task| self.start(task));
            }
            Err(error) => {
                if error == StoreError::NodeLost {
                    self.timers.heartbeat_at = now;
                }
                self.timers.claim_at = now.plus_ms(REST_MS);
            }
        }
    }

    fn start(&mut self, task: TaskRecord) {
        let Some(taken) = self.in_flight.take(&task) else {
            return;
        };

        self.store.history().taken.insert(taken.lease);
        if let Some(older) = taken.replaces {
            self.store.history().saw(Situation::Replaced);
            if self.store.bug != Some(PlantedBug::OlderAttemptRunsOn) {
                self.ask_to_stop(older, StopReason::Lost);
            }
        }

        // The process knows its handlers by task id, so a newer attempt hides an older one.
        for run in &mut self.runs {
            run.is_known &= run.task.id != task.id;
        }

        let stop = self.timers.leave_at.map(|_| StopReason::Drain);

        self.runs.push(Run {
            task,
            info: taken.info,
            lease: taken.lease,
            steps: 0,
            stop,
            is_known: true,
        });
    }

    fn step_handler(&mut self, index: usize, dice: &mut Dice) {
        let ended = script::step(&mut self.runs[index], &self.engine, &self.store, dice);
        let Some(outcome) = ended else { return };

        let run = self.runs.remove(index);
        match run.stop {
            // The store has already taken the lease away: there is nothing to report.
            Some(StopReason::Cancelled | StopReason::Lost) => self.in_flight.drop_lease(&run.lease),
            Some(StopReason::Drain) | None => {
                self.in_flight.add_report(ended_of(&run, outcome));
            }
        }

        self.waits_for_slot = false;
    }

    fn deliver(&mut self) {
        let reports = self.in_flight.next_reports(BATCH);
        let answer = ready(self.engine.finish(&reports)).map(drop);
        self.delivery = Some((reports, answer));
    }

    fn settle_delivery(&mut self) {
        match self.delivery.take() {
            Some((reports, Ok(()))) => self.in_flight.delivered(&reports),
            Some((reports, Err(_))) => {
                if self.store.bug != Some(PlantedBug::ReportsDropped) {
                    self.in_flight.undelivered(reports);
                }
                self.timers.deliver_at = self.store.time().plus_ms(20);
            }
            None => {}
        }
    }

    fn beat(&mut self, dice: &mut Dice) {
        let now = self.store.time();
        self.timers.heartbeat_at = now.plus_ms(HEARTBEAT_MS);

        let leases = self.in_flight.leases();
        match ready(self.engine.leases().heartbeat_node(self.id, &leases)) {
            Ok(gone) => {
                for (lease, reason) in self.in_flight.heartbeat_answered(&gone) {
                    self.ask_to_stop(lease, reason);
                }
                if now >= self.timers.strays_at {
                    self.timers.strays_at = now.plus_ms(STRAYS_EVERY_MS);
                    self.hand_back_strays();
                }
            }
            Err(StoreError::NodeLost) => self.rejoin(dice),
            Err(_) => {}
        }
    }

    fn hand_back_strays(&self) {
        let mut known = self.in_flight.leases();
        match self.store.bug {
            Some(PlantedBug::StraysNeverHandedBack) => return,
            Some(PlantedBug::StraysIgnoreReports) => {
                known.retain(|lease| self.runs.iter().any(|run| run.lease == *lease))
            }
            _ => {}
        }

        let engine = &self.engine;
        let handed_back = ready(
            engine
                .leases()
                .hand_back_strays(self.id, &known, STRAY_AGE_MS),
        );
        if handed_back.is_ok_and(|ids| !ids.is_empty()) {
            self.engine.wake();
        }
    }

    /// The process was declared dead while it was alive. It registers under a new id and stops what
    /// it ran.
    fn rejoin(&mut self, dice: &mut Dice) {
        self.stop_all(StopReason::Lost);
        let id = NodeId(uuid::Uuid::from_u128(dice.number()));

        let engine = &self.engine;
        let registered = ready(engine.leases().register_node(id, &self.name, "host", None));
        if registered.is_ok() {
            self.id = id;
            self.store.history().saw(Situation::Rejoined);
        } else {
            self.timers.heartbeat_at = self.store.time();
        }
    }

    fn ask_to_stop(&mut self, lease: Lease, reason: StopReason) {
        let mut runs = self.runs.iter_mut();
        if let Some(run) = runs.find(|run| run.lease == lease && run.is_known) {
            run.stop.get_or_insert(reason);
        }
    }

    fn stop_all(&mut self, reason: StopReason) {
        for run in self.runs.iter_mut().filter(|run| run.is_known) {
            run.stop.get_or_insert(reason);
        }
    }

    fn run_maintenance_job(&mut self, index: usize) {
        let (job, at) = &mut self.maintenance[index];
        let every_ms = u64::try_from(job.every().as_millis()).unwrap_or(u64::MAX);
        *at = self.store.time().plus_ms(every_ms);

        // A failed round is repeated at its next time.
        let stop = CancellationToken::new();
        let _ = ready(job::round(&self.engine, self.id, &**job, &stop));

        if notified(&self.engine) {
            self.timers.heartbeat_at = self.store.time();
        }
    }
}

/// Whether a change through this engine concerns running handlers.
pub(crate) fn notified(engine: &Engine) -> bool {
    let mut notified = std::pin::pin!(engine.wakeups().wait_for_leases());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    notified.as_mut().poll(&mut context).is_ready()
}

fn ended_of(run: &Run, outcome: AttemptEnd) -> EndedAttempt {
    EndedAttempt::new(
        &run.task,
        Arc::clone(&run.info),
        AttemptReport {
            lease: run.lease,
            end: outcome,
        },
    )
}

/// Most processes serve everything. Some reserve a slot for one queue, some limit a type.
fn plan(dice: &mut Dice) -> SlotPlan {
    let served = |name: &&str| ServedQueue::shared(queue_name(name));
    let mut queues: Vec<ServedQueue> = QUEUES.iter().map(served).collect();
    let mut types: Vec<TypeSlots> = TYPES
        .iter()
        .map(|name| TypeSlots {
            name: (*name).to_owned(),
            at_most: None,
            resources: Vec::new(),
        })
        .collect();

    match dice.below(4) {
        0 => queues[0].reserved = 1,
        1 => types[0].at_most = Some(1),
        _ => {}
    }

    SlotPlan {
        total: 2 + dice.below(3),
        queues,
        types,
        resources: HashMap::new(),
    }
}
