//! What owners and administrators do: submit tasks, once or several times, and change them.

use std::sync::Arc;

use longhaul_domain::{
    Idempotency, Lease, LeaseToken, NewTask, RunAt, Status, StoreError, TaskId, TaskRecord,
    contract::store::{
        Access, AttemptEnd, AttemptReport, BulkChange, BulkRequest, RetryScope, TaskCommands,
        Verdict,
    },
    filter::TaskFilter,
    lifecycle::reschedule::Reschedule,
};
use longhaul_engine::Engine;
use longhaul_testkit::names::queue_name;

use crate::coverage::Situation;
use crate::script::{self, QUEUES, TYPES};
use crate::store::ready;
use crate::world::World;

const OWNER: &str = "ann";
const STRANGER: &str = "bob";
const DAY_MS: u64 = 24 * 3_600 * 1_000;

impl World {
    /// Submits a task of a random type, delayed, with a deadline or with an idempotency key.
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
                self.store.history().saw(Situation::Delayed);
            }
            1 => {
                task.deadline_at = Some(self.store.time().plus_ms(self.dice.between(1_000, 40_000)))
            }
            2 | 3 => {
                // The row repeats the key, so that the history can find the task of a key.
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

    /// A client submits. With an idempotency key it retries until it gets an answer, and a second
    /// client may submit at the same time.
    fn submit(&mut self, task: NewTask, races: bool) {
        let has_key = task.idempotency.is_some();
        self.store.history().note(format_args!(
            "a client submits {} {:?}",
            task.task_type, task.task_key
        ));
        let engine = self.some_engine();

        if races {
            self.store.history().saw(Situation::KeyRaced);
            self.store.set_race(true);
        }

        let mut calls = 1 + usize::from(races);
        while calls > 0 {
            calls -= 1;
            match ready(engine.submit(task.clone())) {
                Ok(submitted) => {
                    let mut history = self.store.history();
                    history.acknowledged(submitted.task_id);
                    if submitted.repeated {
                        history.saw(Situation::KeyRepeated);
                    }
                }
                Err(StoreError::Unavailable(_)) if has_key => calls += 1,
                Err(_) => {}
            }
        }

        self.store.set_race(false);
    }

    pub(crate) fn some_engine(&mut self) -> Arc<Engine> {
        let index = self.dice.below(self.nodes.len());
        Arc::clone(&self.nodes[index].engine)
    }

    /// A user changes one task, or many at once.
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
            .note(format_args!("a user does {what} to t{number}"));

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
            let mut nodes = self.nodes.iter_mut();
            if let Some(node) = nodes.find(|node| Arc::ptr_eq(&node.engine, &engine)) {
                node.heartbeat_now();
            }
        }
    }

    /// An administrator retries a task that has failed, or the failed children of a parent.
    pub(crate) fn retry_something(&mut self) {
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
            .note(format_args!("an administrator retries failed tasks"));

        self.redo_children(&engine, id);
        drop(ready(engine.retry(&Access::All, id, RetryScope::Task)));
    }

    /// Retries the failed children of a random parent. Without such a parent it tries `id`, which
    /// the store refuses.
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
                queue: Some(queue_name(QUEUES[self.dice.below(2)])),
                ..Reschedule::default()
            },
        }
    }

    fn try_as_a_stranger(&mut self, engine: &Engine, id: TaskId) {
        let answer = ready(engine.cancel(&Access::Owner(STRANGER.to_owned()), id));
        let mut history = self.store.history();

        match answer {
            Err(StoreError::NotFound) => history.saw(Situation::StrangerRefused),
            Err(_) => {}
            Ok(_) => history.violated(
                "an owner cannot change a task of another owner",
                "another owner cancelled it",
            ),
        }
    }

    fn pause_or_resume(&mut self) {
        let queue = QUEUES[self.dice.below(QUEUES.len())];
        let is_paused = self.store.history().paused.contains(queue);
        let engine = self.some_engine();

        let done = if is_paused {
            ready(engine.resume_queue(&queue_name(queue)))
        } else {
            ready(engine.pause_queue(&queue_name(queue)))
        };

        if done.is_ok() && !is_paused {
            self.store.history().saw(Situation::QueuePaused);
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

    /// Reports the end of a running attempt with a forged lease token.
    fn forge(&mut self, id: TaskId) {
        let current = self.store.memory.look(|tasks, _| {
            let running = tasks.get(&id).into_iter().chain(tasks.values());
            running.filter_map(TaskRecord::lease).next()
        });
        let Some(lease) = current else { return };

        let token = LeaseToken(uuid::Uuid::from_u128(self.dice.number()));
        let forged = AttemptReport {
            lease: Lease { token, ..lease },
            end: AttemptEnd::Completed {
                result: None,
                result_url: None,
            },
        };

        let verdicts = ready(self.store.finish_tasks(&[forged]));
        if matches!(verdicts.as_deref(), Ok([Verdict::Stale(_)])) {
            self.store.history().saw(Situation::ForgedRefused);
        }
    }
}
