//! What people and their programs do: submit, once or several times, and change their minds.

use longhaul_domain::{
    Idempotency, NewTask, RunAt, Status, StoreError, TaskId,
    contract::store::{Access, BulkChange, BulkRequest, Report, RetryScope, Verdict},
    filter::TaskFilter,
    lifecycle::reschedule::Reschedule,
};
use longhaul_engine::Engine;

use crate::census::Sight;
use crate::script::{self, QUEUES, TYPES};
use crate::store::ready;
use crate::world::World;

const OWNER: &str = "ann";
const STRANGER: &str = "bob";
const DAY_MS: u64 = 24 * 3_600 * 1_000;

impl World {
    /// One of the submissions of this seed, with whatever makes it special.
    pub(crate) fn submit_something(&mut self) {
        let number = self.dice.between(0, 47);
        let kind = match self.dice.below(12) {
            0..=2 => "parent",
            3 if self.dice.one_in(8) => "orphan",
            _ => TYPES[self.dice.below(TYPES.len())],
        };
        let queue = QUEUES[self.dice.below(QUEUES.len())];
        let mut task = script::new_task(OWNER, kind, queue, number);
        task.priority = 1 + u8::from(self.dice.one_in(4));
        match self.dice.below(6) {
            0 => {
                task.run_at = RunAt::AfterMs(self.dice.between(1, 20_000));
                self.store.history().saw(Sight::Delayed);
            }
            1 => {
                task.deadline_at = Some(self.store.time().plus_ms(self.dice.between(1_000, 40_000)))
            }
            2 | 3 => {
                // The key stands in the row too, so that the history can tell whose task it is.
                let key = format!("key {}", self.dice.below(4));
                let digest = [0; 32];
                task = NewTask {
                    run_at: RunAt::Now,
                    ..script::new_task(OWNER, "plain", QUEUES[0], 1)
                };
                task.task_key = Some(key.clone());
                task.idempotency = Some(Idempotency {
                    key,
                    digest,
                    ttl_ms: DAY_MS,
                });
            }
            _ => {}
        }
        let races = task.idempotency.is_some() && self.dice.one_in(2);
        self.submit(task, races);
    }

    /// A client submits, and with a key it asks again until it hears; two may be at it at once.
    fn submit(&mut self, task: NewTask, races: bool) {
        let has_key = task.idempotency.is_some();
        self.store.history().note(format_args!(
            "somebody submits {} {:?}",
            task.task_type, task.task_key
        ));
        let engine = self.some_engine();
        if races {
            self.store.history().saw(Sight::KeyRaced);
            self.store
                .bug_memory
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .race = true;
        }
        let mut calls = 1 + usize::from(races);
        while calls > 0 {
            calls -= 1;
            match ready(engine.submit(task.clone())) {
                Ok(told) => {
                    let mut history = self.store.history();
                    history.acknowledged(told.task_id);
                    if told.repeated {
                        history.saw(Sight::KeyRepeated);
                    }
                }
                Err(StoreError::Unavailable(_)) if has_key => calls += 1,
                Err(_) => {}
            }
        }
        self.store
            .bug_memory
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .race = false;
    }

    pub(crate) fn some_engine(&mut self) -> std::sync::Arc<Engine> {
        let index = self.dice.below(self.nodes.len());
        std::sync::Arc::clone(&self.nodes[index].engine)
    }

    /// A person does something to a task, or to all of a kind.
    pub(crate) fn change_something(&mut self) {
        let ids = self
            .store
            .memory
            .look(|tasks, _| tasks.keys().copied().collect::<Vec<_>>());
        let Some(id) = self.dice.pick(&ids) else {
            return;
        };
        let engine = self.some_engine();
        let number = self.store.history().number(id);
        let what = self.dice.below(15);
        self.store
            .history()
            .note(format_args!("a person does {what} to t{number}"));
        let owner = Access::Owner(OWNER.to_owned());
        match what {
            0..=2 => drop(ready(engine.cancel(&owner, id))),
            3 => self.try_as_a_stranger(&engine, id),
            4..=6 => drop(ready(engine.retry(&owner, id, RetryScope::Task))),
            7 | 8 => self.redo_children(&engine, id),
            9 | 10 => drop(ready(engine.reschedule(&owner, id, &self.some_change()))),
            11 | 12 => self.pause_or_resume(),
            13 => self.forge(id),
            _ => self.change_many(&engine),
        }
        if crate::node::notified(&engine) {
            let own = self
                .nodes
                .iter_mut()
                .find(|node| std::sync::Arc::ptr_eq(&node.engine, &engine));
            own.into_iter()
                .for_each(crate::node::SimNode::look_at_leases);
        }
    }

    /// Somebody wants what ended badly to be tried again.
    pub(crate) fn replay_something(&mut self) {
        let engine = self.some_engine();
        let ids = self
            .store
            .memory
            .look(|tasks, _| tasks.keys().copied().collect::<Vec<_>>());
        let Some(id) = self.dice.pick(&ids) else {
            return;
        };
        self.store
            .history()
            .note(format_args!("somebody wants things tried again"));
        self.redo_children(&engine, id);
        drop(ready(engine.retry(&Access::All, id, RetryScope::Task)));
    }

    /// For a parent with failed children if there is one, else for `id`, which is refused.
    fn redo_children(&mut self, engine: &Engine, id: TaskId) {
        let parents = self.store.memory.look(|tasks, _| {
            let ended = tasks
                .values()
                .filter(|task| task.status.is_ended() && task.children.failed > 0);
            ended.map(|task| task.id).collect::<Vec<_>>()
        });
        let id = self.dice.pick(&parents).unwrap_or(id);
        drop(ready(engine.retry(
            &Access::All,
            id,
            RetryScope::FailedChildren,
        )));
    }

    fn some_change(&mut self) -> Reschedule {
        let now = self.store.time();
        match self.dice.below(4) {
            0 => Reschedule {
                run_at: Some(now.plus_ms(self.dice.between(0, 15_000))),
                ..Reschedule::default()
            },
            1 => Reschedule {
                priority: Some(9),
                ..Reschedule::default()
            },
            2 => Reschedule {
                max_attempts: Some(4),
                ..Reschedule::default()
            },
            _ => Reschedule {
                queue: Some(QUEUES[self.dice.below(2)].to_owned()),
                ..Reschedule::default()
            },
        }
    }

    fn try_as_a_stranger(&mut self, engine: &Engine, id: TaskId) {
        let fate = ready(engine.cancel(&Access::Owner(STRANGER.to_owned()), id));
        let mut history = self.store.history();
        match fate {
            Err(StoreError::NotFound) => history.saw(Sight::StrangerRefused),
            Err(_) => {}
            Ok(_) => history.violated(
                "nobody changes a task of another owner",
                "a stranger cancelled it",
            ),
        }
    }

    fn pause_or_resume(&mut self) {
        let queue = QUEUES[self.dice.below(QUEUES.len())];
        let is_paused = self.store.history().paused.contains(queue);
        let engine = self.some_engine();
        let done = if is_paused {
            ready(engine.store.resume_queue(queue))
        } else {
            ready(engine.store.pause_queue(queue))
        };
        if done.is_ok() && !is_paused {
            self.store.history().saw(Sight::QueuePaused);
        }
    }

    fn change_many(&mut self, engine: &Engine) {
        let (status, change) = match self.dice.below(4) {
            0 => (Status::Queued, BulkChange::Cancel),
            1 => (Status::Retrying, BulkChange::Reschedule(self.some_change())),
            2 => (Status::Failed, BulkChange::Retry),
            _ => (Status::DeadLetter, BulkChange::Retry),
        };
        let filter = TaskFilter {
            statuses: vec![status],
            ..TaskFilter::default()
        };
        let access = Access::Owner(OWNER.to_owned());
        drop(ready(engine.change_many(&BulkRequest {
            access,
            filter,
            change,
            spared: Vec::new(),
            after: None,
            limit: 2,
        })));
    }

    /// Somebody reports an end with the right attempt and a token of another one.
    fn forge(&mut self, id: TaskId) {
        let current = self.store.memory.look(|tasks, _| {
            let running = tasks.get(&id).into_iter().chain(tasks.values());
            running.filter_map(longhaul_domain::Task::lease).next()
        });
        let Some(lease) = current else { return };
        let token = longhaul_domain::LeaseToken(uuid::Uuid::from_u128(self.dice.number()));
        let forged = longhaul_domain::Lease { token, ..lease };
        let outcome = longhaul_domain::contract::store::Outcome::Completed {
            result: None,
            result_url: None,
        };
        let told = ready(self.some_engine().store.finish_tasks(&[Report {
            lease: forged,
            outcome,
        }]));
        if matches!(told.as_deref(), Ok([Verdict::Stale(_)])) {
            self.store.history().saw(Sight::ForgedRefused);
        }
    }
}
