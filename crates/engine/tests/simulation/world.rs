//! One seed: a handful of tasks, some processes, people, and everything that can go wrong between them.

use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{NodeId, Status, Task, TaskId, Timestamp};
use longhaul_engine::{
    service::Duty,
    services::{DutySettings, Expirer, Rescuer},
};

use crate::bugs::PlantedBug;
use crate::census::{Census, Sight};
use crate::dice::Dice;
use crate::history::Violation;
use crate::node::{Action, SimNode};
use crate::outside::Bells;
use crate::script::{QUEUES, TYPES};
use crate::store::{Fault, SimStore, ready};

/// Node deaths after which a task is quarantined: few, so that it happens.
const MAX_CRASHES: u32 = 2;
/// How long everything may take to come to rest once nothing goes wrong any more, by the store's clock.
const SETTLE_MS: u64 = 15 * 60 * 1_000;
/// Steps within which it must. Far more than it takes.
const SETTLE_ROUNDS: usize = 2_000;

/// How a seed went.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) violation: Option<Violation>,
    pub(crate) census: Census,
    pub(crate) trace: String,
    pub(crate) steps: usize,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) dice: Dice,
    pub(crate) store: Arc<SimStore>,
    pub(crate) nodes: Vec<SimNode>,
    bells: Arc<Bells>,
    duties: Vec<Arc<dyn Duty>>,
    step: usize,
}

/// Runs one seed to its end, or to the first promise that does not hold.
pub(crate) fn run(seed: u64, bug: Option<PlantedBug>, traced: bool) -> Ending {
    let mut world = World::new(seed, bug, traced);
    let steps = 40 + world.dice.below(40);
    world.be_hard_for(steps);
    world.settle();
    if world.dice.one_in(4) {
        // What has ended is opened again, and the world is hard once more.
        world.replay_something();
        let steps = 20 + world.dice.below(20);
        world.be_hard_for(steps);
        world.settle();
    }
    let mut history = world.store.history();
    Ending {
        violation: history.violation.take(),
        census: history.census.clone(),
        trace: history.trace().to_owned(),
        steps: world.step,
    }
}

impl World {
    fn new(seed: u64, bug: Option<PlantedBug>, traced: bool) -> Self {
        let mut dice = Dice::new(seed);
        let store = Arc::new(SimStore::new(seed, bug, traced));
        let rescue_every = Duration::from_secs(5);
        let settings = DutySettings {
            max_crashes: MAX_CRASHES,
            rescue_every,
            ..DutySettings::default()
        };
        // The duties that move tasks. The others only tidy up, and have tests of their own.
        let duties: Vec<Arc<dyn Duty>> = vec![
            Arc::new(Rescuer::new(&settings)),
            Arc::new(Expirer::new(&settings)),
        ];
        let bells = Arc::new(Bells::default());
        let mut world = Self {
            store,
            nodes: Vec::new(),
            bells,
            duties,
            step: 0,
            dice: Dice::new(0),
        };
        for index in 0..[2, 2, 2, 3, 3, 4][dice.below(6)] {
            let id = NodeId(uuid::Uuid::from_u128(dice.number()));
            let node = SimNode::new(
                format!("n{index}"),
                id,
                &world.store,
                &world.bells,
                &world.duties,
                &mut dice,
            );
            world.nodes.push(node);
        }
        world.dice = dice;
        world
    }

    fn is_well(&self) -> bool {
        self.store.history().violation.is_none()
    }

    fn be_hard_for(&mut self, steps: usize) {
        for _ in 0..steps {
            if !self.is_well() {
                return;
            }
            self.take_a_step();
        }
    }

    fn take_a_step(&mut self) {
        self.step += 1;
        self.store.history().step = self.step;
        let ms = self.dice.between(0, 400);
        self.store.clock.advance_ms(ms);
        let (one, other) = (self.dice.below(100), self.dice.below(24));
        // Whoever calls the store next may not reach it, or not hear of it.
        self.store.fail_next(match other {
            0 => Some(Fault::LostRequest),
            1 | 2 => Some(Fault::LostAnswer),
            _ => None,
        });
        match one {
            0..=6 => self.submit_something(),
            7..=15 => self.change_something(),
            16 | 17 => self.crash(),
            18 | 19 => self.pause(),
            20 => self.drain(),
            21..=23 => self.jump(),
            24 => self.ring_for_nothing(),
            _ => self.let_a_node_act(),
        }
        self.store.fail_next(None);
    }

    fn some_node(&mut self) -> usize {
        self.dice.below(self.nodes.len())
    }

    fn let_a_node_act(&mut self) {
        let index = self.some_node();
        let now = self.store.time();
        let actions = self.nodes[index].actions(now);
        let Some(action) = self.dice.pick(&actions) else {
            return;
        };
        self.bells.deafen(self.dice.one_in(10));
        self.act(index, action);
        self.bells.deafen(false);
        if self.bells.lost() {
            self.store.history().saw(Sight::LostBell);
        }
    }

    fn act(&mut self, index: usize, action: Action) {
        self.store
            .history()
            .note(format_args!("n{index} {action:?}"));
        let has_left = self.nodes[index].act(action, &mut self.dice);
        if has_left {
            self.store.history().saw(Sight::Drain);
            self.replace(index, false);
        }
    }

    /// The process is gone with all that it had in hand, and another one comes.
    fn crash(&mut self) {
        let index = self.some_node();
        let mut history = self.store.history();
        history.saw(Sight::Crash);
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
            &self.bells,
            &self.duties,
            &mut self.dice,
        );
        self.nodes[index] = fresh;
    }

    fn pause(&mut self) {
        let index = self.some_node();
        let ms = self.dice.between(1_000, 120_000);
        let mut history = self.store.history();
        history.saw(Sight::Pause);
        history.note(format_args!("n{index} stands still for {ms} ms"));
        drop(history);
        self.nodes[index].pause(ms);
        if self.dice.one_in(2) {
            // The world goes on without it: its lease runs out.
            self.jump();
        }
    }

    fn drain(&mut self) {
        let index = self.some_node();
        self.store
            .history()
            .note(format_args!("n{index} is told to shut down"));
        self.nodes[index].drain();
    }

    fn jump(&mut self) {
        let ms = self.dice.between(1_000, 45_000);
        let mut history = self.store.history();
        history.saw(Sight::ClockJump);
        history.note(format_args!("the clock jumps by {ms} ms"));
        drop(history);
        self.store.clock.advance_ms(ms);
    }

    fn ring_for_nothing(&mut self) {
        self.store.history().saw(Sight::RepeatedBell);
        longhaul_domain::contract::Doorbell::ring(&*self.bells, "");
    }

    /// Nothing goes wrong any more: everything must come to its end, or wait for something that people can see.
    fn settle(&mut self) {
        self.store
            .history()
            .note(format_args!("nothing goes wrong from here on"));
        self.nodes.iter_mut().for_each(SimNode::wake);
        for queue in QUEUES {
            if self.dice.below(4) > 0 {
                let engine = self.some_engine();
                let _ = ready(engine.store.resume_queue(queue));
            }
        }
        let until = self.store.time().plus_ms(SETTLE_MS);
        for _ in 0..SETTLE_ROUNDS {
            let now = self.store.time();
            if !self.is_well() || now >= until {
                break;
            }
            if self.is_at_rest() {
                return self.look_who_waits();
            }
            if !self.let_all_nodes_act(now) {
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
        if self.is_well() {
            let stuck = self.stuck();
            self.store.history().violated("nothing is stuck", stuck);
        }
    }

    /// One step of each process that has one; whether anybody did more than keep watch.
    fn let_all_nodes_act(&mut self, now: Timestamp) -> bool {
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

    /// Tasks that have not ended and wait for nothing that people could name.
    fn open_tasks(&self) -> Vec<TaskId> {
        let history = self.store.history();
        self.store.memory.look(|tasks, _| {
            let waits = |task: &Task| {
                let is_paused = history.paused.contains(&task.queue);
                task.status.is_claimable()
                    && (is_paused || !TYPES.contains(&task.task_type.as_str()))
            };
            // A parent waits for what its children wait for.
            let below = |parent: &Task| {
                let mut line = vec![parent.id];
                let mut found = false;
                while let Some(id) = line.pop() {
                    for child in tasks.values().filter(|task| task.parent_id == Some(id)) {
                        found |= waits(child);
                        line.push(child.id);
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

    fn look_who_waits(&self) {
        let waits = self
            .store
            .memory
            .look(|tasks, _| tasks.values().any(|task| !task.status.is_ended()));
        if waits {
            self.store.history().saw(Sight::LegitimateWait);
        }
    }

    fn stuck(&self) -> String {
        let open = self.open_tasks();
        let told = self.store.memory.look(|tasks, _| {
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
        let busy = self
            .nodes
            .iter()
            .filter(|node| !node.is_idle())
            .map(|node| node.name.as_str());
        let busy = busy.collect::<Vec<_>>().join(", ");
        format!(
            "without faults for {SETTLE_MS} ms, open: {}; nodes with something in hand: {busy}",
            told.join(", ")
        )
    }
}
