//! A process that runs tasks, driven step by step the way the worker's loops drive the desk.
//!
//! A claim and a delivery are two steps each, the call and its answer, so that everything else that a process does can
//! come between them.

use std::collections::HashMap;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::time::Duration;

use longhaul_domain::{
    Lease, NodeId, StoreError, Task, TaskId, Timestamp, bounds,
    contract::store::{ClaimNamed, ClaimRequest, Outcome, Report},
};
use longhaul_engine::{
    Desk, Engine, TaskInfo,
    commands::finish::Ended,
    desk::StopReason,
    pace::{Pace, PollSettings},
    service::{self, Duty},
    slots::{QueueSlots, SlotPlan, TypeSlots},
};

use tokio_util::sync::CancellationToken;

use crate::bugs::PlantedBug;
use crate::census::Sight;
use crate::dice::Dice;
use crate::outside::{Bells, SilentBus};
use crate::script::{self, QUEUES, TYPES};
use crate::store::{SimStore, ready};

const HEARTBEAT_MS: u64 = 5_000;
const STRAYS_EVERY_MS: u64 = 15_000;
const STRAY_AGE_MS: u64 = 60_000;
const REST_MS: u64 = 500;
/// How soon a process looks again after it found work, unless a bell rings. The worker does after some milliseconds; a
/// simulated step takes longer than that, and every step would be a look.
const AFTER_WORK_MS: u64 = 1_000;
const BATCH: usize = 500;
/// How long a drain may take before the process ends with what it still has.
const DRAIN_MS: u64 = 30_000;

/// A handler at work.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) task: Task,
    info: Arc<TaskInfo>,
    pub(crate) lease: Lease,
    /// Steps so far.
    pub(crate) steps: u64,
    pub(crate) stop: Option<StopReason>,
    /// Whether the process still finds it: a newer attempt of the same task takes its place.
    is_known: bool,
}

/// What a process can do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Register,
    Claim,
    ClaimAnswer,
    Handler(usize),
    Deliver,
    DeliverAnswer,
    Beat,
    Duty(usize),
    Leave,
}

/// The timers of the worker's loops, by the simulation's clock.
#[derive(Debug, Clone, Copy, Default)]
struct Timers {
    look_at: Timestamp,
    beat_at: Timestamp,
    strays_at: Timestamp,
    deliver_at: Timestamp,
    leave_at: Option<Timestamp>,
    /// Nothing happens before, whatever is due.
    awake_at: Timestamp,
}

/// Bells that a process remembers.
const HEARD: usize = 8;

#[derive(Debug)]
pub(crate) struct SimNode {
    pub(crate) name: String,
    pub(crate) id: NodeId,
    pub(crate) engine: Arc<Engine>,
    store: Arc<SimStore>,
    bell: Arc<AtomicBool>,
    is_registered: bool,
    desk: Desk,
    runs: Vec<Run>,
    pace: Pace,
    /// Every slot is taken: the claimer rests until a handler ends.
    waits_for_room: bool,
    timers: Timers,
    duties: Vec<(Arc<dyn Duty>, Timestamp)>,
    claim: Option<Result<Vec<Task>, StoreError>>,
    /// Bells that have rung here, the last ones. Some ring again.
    heard: Vec<TaskId>,
    delivery: Option<(Vec<Ended>, Result<(), StoreError>)>,
}

impl SimNode {
    pub(crate) fn new(
        name: String,
        id: NodeId,
        store: &Arc<SimStore>,
        bells: &Arc<Bells>,
        duties: &[Arc<dyn Duty>],
        dice: &mut Dice,
    ) -> Self {
        let now = store.time();
        let timers = Timers {
            beat_at: now.plus_ms(HEARTBEAT_MS),
            strays_at: now.plus_ms(STRAYS_EVERY_MS),
            ..Timers::default()
        };
        Self {
            engine: Engine::new(
                Arc::<SimStore>::clone(store),
                Arc::new(SilentBus),
                Arc::<Bells>::clone(bells),
            ),
            bell: bells.of(&name),
            name,
            id,
            store: Arc::clone(store),
            is_registered: false,
            desk: Desk::new(plan(dice)),
            runs: Vec::new(),
            pace: Pace::new(PollSettings {
                least: Duration::from_secs(2),
                most: Duration::from_secs(15),
            }),
            waits_for_room: false,
            timers,
            duties: duties.iter().map(|duty| (Arc::clone(duty), now)).collect(),
            claim: None,
            heard: Vec::new(),
            delivery: None,
        }
    }

    /// The process stands still: its timers go on without it, and the world too.
    pub(crate) fn pause(&mut self, ms: u64) {
        self.timers.awake_at = self.store.time().plus_ms(ms);
    }

    pub(crate) fn wake(&mut self) {
        self.timers.awake_at = Timestamp::default();
    }

    /// The process is told to shut down: no more claims, and handlers are asked to stop.
    pub(crate) fn drain(&mut self) {
        if self.timers.leave_at.is_none() {
            self.timers.leave_at = Some(self.store.time().plus_ms(DRAIN_MS));
            self.stop_all(StopReason::Drain);
        }
    }

    /// Something was changed that the handlers should hear of: the next heartbeat comes at once.
    pub(crate) fn look_at_leases(&mut self) {
        self.timers.beat_at = self.store.time();
    }

    /// Whether the process has nothing in hand and nothing on the way.
    pub(crate) fn is_idle(&self) -> bool {
        self.desk.is_clear()
            && self.runs.is_empty()
            && self.claim.is_none()
            && self.delivery.is_none()
    }

    /// When something is due that only waits for time.
    pub(crate) fn next_timer(&self) -> Timestamp {
        let duty = self
            .duties
            .iter()
            .map(|(_, at)| *at)
            .min()
            .unwrap_or_default();
        self.timers.look_at.min(self.timers.beat_at).min(duty)
    }

    /// What the process could do now, in no particular order.
    pub(crate) fn actions(&self, now: Timestamp) -> Vec<Action> {
        if now < self.timers.awake_at {
            return Vec::new();
        }
        if !self.is_registered {
            return vec![Action::Register];
        }
        let ready = self
            .runs
            .iter()
            .enumerate()
            .filter(|(_, run)| script::is_ready(run, now));
        let mut actions: Vec<Action> = ready.map(|(index, _)| Action::Handler(index)).collect();
        let looks = !self.waits_for_room
            && (self.bell.load(Ordering::Relaxed) || now >= self.timers.look_at);
        let drains = self.timers.leave_at.is_some();
        match &self.claim {
            Some(_) => actions.push(Action::ClaimAnswer),
            None if looks && !drains => actions.push(Action::Claim),
            None => {}
        }
        match &self.delivery {
            Some(_) => actions.push(Action::DeliverAnswer),
            None if self.desk.waiting_reports() > 0 && now >= self.timers.deliver_at => {
                actions.push(Action::Deliver)
            }
            None => {}
        }
        if now >= self.timers.beat_at {
            actions.push(Action::Beat);
        }
        let due = self
            .duties
            .iter()
            .enumerate()
            .filter(|(_, (_, at))| now >= *at);
        actions.extend(due.map(|(index, _)| Action::Duty(index)));
        if self
            .timers
            .leave_at
            .is_some_and(|at| self.is_idle() || now >= at)
        {
            actions.push(Action::Leave);
        }
        actions
    }

    /// Does one thing. `true` when the process has ended and another one is to take its place.
    pub(crate) fn act(&mut self, action: Action, dice: &mut Dice) -> bool {
        match action {
            Action::Register => self.register(),
            Action::Claim => self.ask_for_work(dice),
            Action::ClaimAnswer => self.take_work(),
            Action::Handler(index) => self.step_handler(index, dice),
            Action::Deliver => self.deliver(),
            Action::DeliverAnswer => self.hear_of_delivery(),
            Action::Beat => self.beat(dice),
            Action::Duty(index) => self.do_duty(index),
            Action::Leave => {
                let _ = ready(self.store_of_engine().retire_node(self.id));
                return true;
            }
        }
        false
    }

    fn store_of_engine(&self) -> &dyn longhaul_domain::contract::Store {
        &*self.engine.store
    }

    fn register(&mut self) {
        match ready(
            self.store_of_engine()
                .register_node(self.id, &self.name, "host", None),
        ) {
            Ok(()) => self.is_registered = true,
            // A process whose id is dead takes another one.
            Err(StoreError::NodeLost) => {
                self.id = NodeId(uuid::Uuid::from_u128(self.id.0.as_u128() + 1))
            }
            Err(_) => {}
        }
    }

    fn ask_for_work(&mut self, dice: &mut Dice) {
        self.bell.store(false, Ordering::Relaxed);
        let scopes = self.desk.scopes();
        let Some(scope) = (!scopes.is_empty()).then(|| &scopes[dice.below(scopes.len())]) else {
            self.waits_for_room = true;
            return;
        };
        let request = ClaimRequest {
            node_id: self.id,
            host: "host".to_owned(),
            limit: self.desk.room(scope).min(bounds::CLAIM_BATCH),
            queues: scope.queues.clone(),
            task_types: scope.task_types.clone(),
        };
        let answer = match self.hear_bells(&request, dice) {
            ids if ids.is_empty() => ready(self.store_of_engine().claim_tasks(&request)),
            ids => self.claim_by_name(&request, ids),
        };
        if answer.as_ref().is_ok_and(Vec::is_empty) {
            let wait = self.pace.idle(dice.unit());
            let due = ready(
                self.store_of_engine()
                    .next_due_at(&scope.queues, &scope.task_types),
            );
            let now = self.store.time();
            let until = due
                .ok()
                .flatten()
                .map_or(u64::MAX, |due| due.micros_since(now) / 1_000 + 1);
            self.timers.look_at = now.plus_ms(
                u64::try_from(wait.as_millis())
                    .unwrap_or(u64::MAX)
                    .min(until),
            );
            self.store.history().saw(Sight::EarlyLook);
            return;
        }
        self.claim = Some(answer);
    }

    /// Bells of what waits, each of which may be lost, and of what has waited once.
    fn hear_bells(&mut self, request: &ClaimRequest, dice: &mut Dice) -> Vec<TaskId> {
        if dice.one_in(2) {
            return Vec::new();
        }
        let mut ids: Vec<TaskId> = self
            .heard
            .iter()
            .copied()
            .filter(|_| dice.one_in(3))
            .collect();
        for queue in &request.queues {
            let due =
                ready(self.store_of_engine().list_due(queue, request.limit)).unwrap_or_default();
            ids.extend(
                due.into_iter()
                    .map(|bell| bell.task_id)
                    .filter(|_| !dice.one_in(5)),
            );
        }
        ids.truncate(request.limit);
        self.heard.extend(&ids);
        let old = self.heard.len().saturating_sub(HEARD);
        self.heard.drain(..old);
        ids
    }

    fn claim_by_name(
        &self,
        request: &ClaimRequest,
        ids: Vec<TaskId>,
    ) -> Result<Vec<Task>, StoreError> {
        let (node_id, host, rung) = (request.node_id, request.host.clone(), ids.len());
        let named = ClaimNamed {
            node_id,
            host,
            task_types: request.task_types.clone(),
            ids,
        };
        let answer = ready(self.store_of_engine().claim_named(&named));
        let claimed = answer.as_ref().map_or(rung, Vec::len);
        if claimed > 0 {
            self.store.history().saw(Sight::ClaimByName);
        }
        if claimed < rung {
            self.store.history().saw(Sight::StaleBell);
        }
        answer
    }

    fn take_work(&mut self) {
        let Some(answer) = self.claim.take() else {
            return;
        };
        self.pace.found();
        let now = self.store.time();
        match answer {
            Ok(tasks) => {
                self.timers.look_at = now.plus_ms(AFTER_WORK_MS);
                tasks.into_iter().for_each(|task| self.start(task));
            }
            Err(error) => {
                if error == StoreError::NodeLost {
                    self.timers.beat_at = now;
                }
                self.timers.look_at = now.plus_ms(REST_MS);
            }
        }
    }

    fn start(&mut self, task: Task) {
        let Some(taken) = self.desk.take(&task) else {
            return;
        };
        self.store.history().taken.insert(taken.lease);
        if let Some(older) = taken.replaces {
            self.store.history().saw(Sight::Replaced);
            if self.store.bug != Some(PlantedBug::OlderAttemptRunsOn) {
                self.ask_to_stop(older, StopReason::Lost);
            }
        }
        // The process finds a handler by its task: a newer attempt takes the place of an older one.
        self.runs
            .iter_mut()
            .filter(|run| run.task.id == task.id)
            .for_each(|run| run.is_known = false);
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
            // The store has gone on without this attempt; there is nobody to tell.
            Some(StopReason::Cancelled | StopReason::Lost) => self.desk.drop_lease(&run.lease),
            Some(StopReason::Drain) | None => {
                self.desk.end(ended_of(&run, outcome));
            }
        }
        self.waits_for_room = false;
    }

    fn deliver(&mut self) {
        let reports = self.desk.next_reports(BATCH);
        let answer = ready(self.engine.finish(&reports)).map(drop);
        self.delivery = Some((reports, answer));
    }

    fn hear_of_delivery(&mut self) {
        match self.delivery.take() {
            Some((reports, Ok(()))) => self.desk.delivered(&reports),
            Some((reports, Err(_))) => {
                if self.store.bug != Some(PlantedBug::ReportsDropped) {
                    self.desk.undelivered(reports);
                }
                self.timers.deliver_at = self.store.time().plus_ms(20);
            }
            None => {}
        }
    }

    fn beat(&mut self, dice: &mut Dice) {
        let now = self.store.time();
        self.timers.beat_at = now.plus_ms(HEARTBEAT_MS);
        let leases = self.desk.leases();
        match ready(self.store_of_engine().heartbeat_node(self.id, &leases)) {
            Ok(gone) => {
                for (lease, reason) in self.desk.beaten(&gone) {
                    self.ask_to_stop(lease, reason);
                }
                if now >= self.timers.strays_at {
                    self.timers.strays_at = now.plus_ms(STRAYS_EVERY_MS);
                    self.hand_back_strays();
                }
            }
            Err(StoreError::NodeLost) => self.come_back(dice),
            Err(_) => {}
        }
    }

    fn hand_back_strays(&self) {
        let mut held = self.desk.leases();
        match self.store.bug {
            Some(PlantedBug::StraysKept) => return,
            Some(PlantedBug::StraysForgetReports) => {
                held.retain(|lease| self.runs.iter().any(|r| r.lease == *lease))
            }
            _ => {}
        }
        if ready(
            self.store_of_engine()
                .hand_back_strays(self.id, &held, STRAY_AGE_MS),
        )
        .is_ok_and(|s| !s.is_empty())
        {
            self.engine.doorbell.ring("");
        }
    }

    /// The process was declared dead while it lived: it goes on under a new id, and what it ran is lost.
    fn come_back(&mut self, dice: &mut Dice) {
        self.stop_all(StopReason::Lost);
        let id = NodeId(uuid::Uuid::from_u128(dice.number()));
        if ready(
            self.store_of_engine()
                .register_node(id, &self.name, "host", None),
        )
        .is_ok()
        {
            self.id = id;
            self.store.history().saw(Sight::ComeBack);
        } else {
            self.timers.beat_at = self.store.time();
        }
    }

    fn ask_to_stop(&mut self, lease: Lease, reason: StopReason) {
        if let Some(run) = self
            .runs
            .iter_mut()
            .find(|run| run.lease == lease && run.is_known)
        {
            run.stop.get_or_insert(reason);
        }
    }

    fn stop_all(&mut self, reason: StopReason) {
        for run in self.runs.iter_mut().filter(|run| run.is_known) {
            run.stop.get_or_insert(reason);
        }
    }

    fn do_duty(&mut self, index: usize) {
        let (duty, at) = &mut self.duties[index];
        *at = self
            .store
            .time()
            .plus_ms(u64::try_from(duty.every().as_millis()).unwrap_or(u64::MAX));
        // A round that fails is done again at its next time.
        let _ = ready(service::round(
            &self.engine,
            self.id,
            &**duty,
            &CancellationToken::new(),
        ));
        if notified(&self.engine) {
            self.timers.beat_at = self.store.time();
        }
    }
}

/// Whether this process has changed something that its handlers should hear of.
pub(crate) fn notified(engine: &Engine) -> bool {
    let mut heard = std::pin::pin!(engine.look_at_leases.notified());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    heard.as_mut().poll(&mut context).is_ready()
}

fn ended_of(run: &Run, outcome: Outcome) -> Ended {
    Ended::new(
        &run.task,
        Arc::clone(&run.info),
        Report {
            lease: run.lease,
            outcome,
        },
    )
}

/// Most processes take everything; some keep slots for one queue, or limit a type.
fn plan(dice: &mut Dice) -> SlotPlan {
    let mut queues: Vec<QueueSlots> = QUEUES.iter().map(|name| QueueSlots::shared(name)).collect();
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
