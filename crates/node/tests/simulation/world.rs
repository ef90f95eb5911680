//! One seed: a few tasks, some processes, their users, and every fault that can happen between
//! them.

use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{NodeId, Status, TaskId, TaskRecord, Timestamp};
use longhaul_node::{
    maintenance::job::MaintenanceJob,
    maintenance::{Expirer, MaintenanceSettings, Rescuer},
};
use longhaul_testkit::names::queue_name;

use crate::bugs::PlantedBug;
use crate::coverage::{Coverage, Situation};
use crate::dice::Dice;
use crate::history::Violation;
use crate::node::{Action, SimNode};
use crate::outside::Hints;
use crate::script::{QUEUES, TYPES};
use crate::store::{Fault, SimStore, ready};

/// Node deaths after which a task is quarantined. Few, so that some seeds reach it.
const MAX_CRASHES: u32 = 2;
/// The time by the store's clock within which all tasks must settle once the faults end.
const SETTLE_MS: u64 = 15 * 60 * 1_000;
/// The rounds within which all tasks must settle. Far more than they take.
const SETTLE_ROUNDS: usize = 2_000;

/// The result of one seed.
#[derive(Debug)]
pub(crate) struct SeedResult {
    pub(crate) violation: Option<Violation>,
    pub(crate) coverage: Coverage,
    pub(crate) trace: String,
    pub(crate) steps: usize,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) dice: Dice,
    pub(crate) store: Arc<SimStore>,
    pub(crate) nodes: Vec<SimNode>,
    hints: Arc<Hints>,
    maintenance: Vec<Arc<dyn MaintenanceJob>>,
    step: usize,
}

/// Runs one seed to its end or to the first violation.
pub(crate) fn run(seed: u64, bug: Option<PlantedBug>, traced: bool) -> SeedResult {
    let mut world = World::new(seed, bug, traced);
    let steps = 40 + world.dice.below(40);
    world.inject_faults_for(steps);
    world.settle();

    if world.dice.one_in(4) {
        // Ended tasks are reopened, with faults again.
        world.retry_something();
        let steps = 20 + world.dice.below(20);
        world.inject_faults_for(steps);
        world.settle();
    }

    let mut history = world.store.history();
    SeedResult {
        violation: history.violation.take(),
        coverage: history.coverage.clone(),
        trace: history.trace().to_owned(),
        steps: world.step,
    }
}

impl World {
    fn new(seed: u64, bug: Option<PlantedBug>, traced: bool) -> Self {
        let mut dice = Dice::new(seed);
        let store = Arc::new(SimStore::new(seed, bug, traced));
        let rescue_every = Duration::from_secs(5);
        let settings = MaintenanceSettings {
            max_crashes: MAX_CRASHES,
            rescue_every,
            ..MaintenanceSettings::default()
        };

        // The two jobs that move tasks. The others only clean up and have tests of their own.
        let maintenance: Vec<Arc<dyn MaintenanceJob>> = vec![
            Arc::new(Rescuer::new(&settings)),
            Arc::new(Expirer::new(&settings)),
        ];
        let hints = Arc::new(Hints::default());

        let mut world = Self {
            store,
            nodes: Vec::new(),
            hints,
            maintenance,
            step: 0,
            dice: Dice::new(0),
        };

        for index in 0..[2, 2, 2, 3, 3, 4][dice.below(6)] {
            let id = NodeId(uuid::Uuid::from_u128(dice.number()));
            let node = SimNode::new(
                format!("n{index}"),
                id,
                &world.store,
                &world.hints,
                &world.maintenance,
                &mut dice,
            );

            world.nodes.push(node);
        }

        world.dice = dice;
        world
    }

    fn has_no_violation(&self) -> bool {
        self.store.history().violation.is_none()
    }

    fn inject_faults_for(&mut self, steps: usize) {
        for _ in 0..steps {
            if !self.has_no_violation() {
                return;
            }
            self.step_once();
        }
    }

    fn step_once(&mut self) {
        self.step += 1;
        self.store.history().step = self.step;
        let ms = self.dice.between(0, 400);
        self.store.clock.advance_ms(ms);

        let action = self.dice.below(100);
        let fault = self.dice.below(24);

        // The next call to the store may lose its request or its answer.
        self.store.fail_next(match fault {
            0 => Some(Fault::LostRequest),
            1 | 2 => Some(Fault::LostAnswer),
            _ => None,
        });

        match action {
            0..=6 => self.submit_something(),
            7..=15 => self.change_something(),
            16 | 17 => self.crash(),
            18 | 19 => self.pause(),
            20 => self.drain(),
            21..=23 => self.jump(),
            24 => self.notify_without_work(),
            _ => self.act_on_some_node(),
        }

        self.store.fail_next(None);
    }

    fn some_node(&mut self) -> usize {
        self.dice.below(self.nodes.len())
    }

    fn act_on_some_node(&mut self) {
        let index = self.some_node();
        let now = self.store.time();
        let actions = self.nodes[index].actions(now);
        let Some(action) = self.dice.pick(&actions) else {
            return;
        };

        // Some actions lose the hints that they publish.
        self.hints.drop_hints(self.dice.one_in(10));
        self.act(index, action);
        self.hints.drop_hints(false);

        if self.hints.lost() {
            self.store.history().saw(Situation::LostHint);
        }
    }

    fn act(&mut self, index: usize, action: Action) {
        self.store
            .history()
            .note(format_args!("n{index} {action:?}"));
        let has_left = self.nodes[index].act(action, &mut self.dice);
        if has_left {
            self.store.history().saw(Situation::Drain);
            self.replace(index, false);
        }
    }

    /// A process dies with everything it had in flight, and a new one takes its place.
    fn crash(&mut self) {
        let index = self.some_node();
        let mut history = self.store.history();
        history.saw(Situation::Crash);
        history.note(format_args!("n{index} crashes"));
        drop(history);
        self.replace(index, self.store.bug == Some(PlantedBug::BootIdReused));
    }

    fn replace(&mut self, index: usize, keeps_id: bool) {
        let id = if keeps_id {
            self.nodes[index].id
        } else {
            NodeId(uuid::Uuid::from_u128(self.dice.number()))
        };
        let name = self.nodes[index].name.clone();

        let fresh = SimNode::new(
            name,
            id,
            &self.store,
            &self.hints,
            &self.maintenance,
            &mut self.dice,
        );

        self.nodes[index] = fresh;
    }

    fn pause(&mut self) {
        let index = self.some_node();
        let ms = self.dice.between(1_000, 120_000);
        let mut history = self.store.history();
        history.saw(Situation::Pause);
        history.note(format_args!("n{index} is paused for {ms} ms"));
        drop(history);
        self.nodes[index].pause(ms);

        if self.dice.one_in(2) {
            // Time passes for the others, so that its lease expires.
            self.jump();
        }
    }

    fn drain(&mut self) {
        let index = self.some_node();
        self.store
            .history()
            .note(format_args!("n{index} begins to drain"));
        self.nodes[index].drain();
    }

    fn jump(&mut self) {
        let ms = self.dice.between(1_000, 45_000);
        let mut history = self.store.history();
        history.saw(Situation::ClockJump);
        history.note(format_args!("the clock jumps by {ms} ms"));
        drop(history);
        self.store.clock.advance_ms(ms);
    }

    fn notify_without_work(&mut self) {
        self.store.history().saw(Situation::RepeatedHint);
        longhaul_domain::contract::Notifier::notify(&*self.hints, "");
    }

    /// Without faults from here on, every task must end or wait for a reason that a user can see.
    fn settle(&mut self) {
        self.store.history().note(format_args!("no more faults"));
        self.nodes.iter_mut().for_each(SimNode::wake);

        for queue in QUEUES {
            if self.dice.below(4) > 0 {
                let engine = self.some_engine();
                let _ = ready(engine.resume_queue(&queue_name(queue)));
            }
        }

        let until = self.store.time().plus_ms(SETTLE_MS);
        for _ in 0..SETTLE_ROUNDS {
            let now = self.store.time();
            if !self.has_no_violation() || now >= until {
                break;
            }
            if self.is_at_rest() {
                return self.note_legitimate_waits();
            }

            if !self.act_on_all_nodes(now) {
                let next = self
                    .nodes
                    .iter()
                    .map(SimNode::next_timer)
                    .min()
                    .unwrap_or(now);

                self.store
                    .clock
                    .advance_ms((next.micros_since(now) / 1_000).clamp(2_000, 5_000));
            }
        }

        if self.has_no_violation() {
            let stuck = self.stuck();
            self.store.history().violated("no task is stuck", stuck);
        }
    }

    /// Lets each process take one step. Returns whether any process had one.
    fn act_on_all_nodes(&mut self, now: Timestamp) -> bool {
        let mut was_busy = false;
        for index in 0..self.nodes.len() {
            let actions = self.nodes[index].actions(now);
            let Some(action) = self.dice.pick(&actions) else {
                continue;
            };
            self.step += 1;
            self.store.history().step = self.step;
            self.act(index, action);
            was_busy = true;
        }

        was_busy
    }

    fn is_at_rest(&self) -> bool {
        self.nodes.iter().all(SimNode::is_idle) && self.open_tasks().is_empty()
    }

    /// Tasks that have not ended and have no visible reason to wait.
    fn open_tasks(&self) -> Vec<TaskId> {
        let history = self.store.history();
        self.store.memory.look(|tasks, _| {
            let waits = |task: &TaskRecord| {
                let is_paused = history.paused.contains(&task.queue);
                task.status.is_claimable()
                    && (is_paused || !TYPES.contains(&task.task_type.as_str()))
            };

            // A parent waits for what its children wait for.
            let below = |parent: &TaskRecord| {
                let mut pending = vec![parent.id];
                let mut found = false;
                while let Some(id) = pending.pop() {
                    for child in tasks.values().filter(|task| task.parent_id == Some(id)) {
                        found |= waits(child);
                        pending.push(child.id);
                    }
                }

                found
            };

            let open = tasks.values().filter(|task| !task.status.is_ended());
            let stuck = open
                .filter(|task| !waits(task) && (task.status != Status::Waiting || !below(task)));
            stuck.map(|task| task.id).collect()
        })
    }

    fn note_legitimate_waits(&self) {
        let waits = self
            .store
            .memory
            .look(|tasks, _| tasks.values().any(|task| !task.status.is_ended()));
        if waits {
            self.store.history().saw(Situation::LegitimateWait);
        }
    }

    fn stuck(&self) -> String {
        let open = self.open_tasks();
        let tasks = self.store.memory.look(|tasks, _| {
            let one = |id: &TaskId| {
                let task = &tasks[id];
                let number = self.store.history().number(*id);
                format!(
                    "t{number} {} {} attempt {}",
                    task.task_type,
                    task.status.as_str(),
                    task.attempt
                )
            };

            open.iter().map(one).collect::<Vec<_>>()
        });

        let busy = self.nodes.iter().filter(|node| !node.is_idle());
        let names: Vec<&str> = busy.map(|node| node.name.as_str()).collect();
        let busy = names.join(", ");

        format!(
            "without faults for {SETTLE_MS} ms, open: {}; busy nodes: {busy}",
            tasks.join(", ")
        )
    }
}
