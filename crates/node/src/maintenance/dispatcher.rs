//! The dispatcher: publishes hints over the broker for tasks that wait in the store, in the store's
//! order, and never for many at once.
//!
//! A waiting row is its own outbox entry; there is no other list. The dispatcher looks at the head
//! of each queue and at the number of hints that the broker still has of it. A [`DispatchWindow`]
//! decides which tasks get a hint. All of the dispatcher's memory may be lost: then some hints are
//! published twice.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::{
    QueueName, StoreError,
    contract::{
        Broker,
        broker::{BrokerError, Hint, Published},
    },
};
use longhaul_engine::Engine;
use tokio::{sync::Mutex, time::Instant};

use super::job::{MaintenanceJob, Pass};
use crate::dispatch_window::DispatchWindow;

/// How often it looks for queues with waiting tasks, and reports which are backlogged.
const IDLE: Duration = Duration::from_secs(1);
/// How often it tries again while the broker or the store does not answer.
const RETRY: Duration = Duration::from_millis(200);
/// The shortest rest.
const MIN_REST: Duration = Duration::from_millis(5);
/// How long the window of an empty queue is remembered: its size may be useful soon.
const REMEMBER: Duration = Duration::from_secs(60);
/// A dispatcher that has not run for this long did not have the job in between, and forgets
/// everything.
const OUT_OF_DATE: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug, Default)]
pub struct Dispatcher {
    memory: Mutex<Memory>,
    rest_ms: AtomicU64,
}

/// What the dispatcher remembers between two passes.
#[derive(Debug, Default)]
struct Memory {
    queues: BTreeMap<QueueName, Queue>,
    /// Queues that exist in the broker.
    declared: HashSet<QueueName>,
    listed_queues_at: Option<Instant>,
    last_pass: Option<Instant>,
    /// The backlogged queues of the last report, and when it was sent.
    reported: Option<(Instant, Vec<String>)>,
}

#[derive(Debug)]
struct Queue {
    window: DispatchWindow,
    /// When to plan next; `None` while no tasks wait there.
    plan_at: Option<Instant>,
    had_work_at: Instant,
}

#[async_trait]
impl MaintenanceJob for Dispatcher {
    fn name(&self) -> &'static str {
        "dispatcher"
    }

    fn every(&self) -> Duration {
        IDLE
    }

    /// Tasks of a process without hints of its own start when they are dispatched.
    fn is_urgent(&self) -> bool {
        true
    }

    fn rest(&self) -> Duration {
        Duration::from_millis(self.rest_ms.load(Ordering::Relaxed)).clamp(MIN_REST, IDLE)
    }

    async fn woken(&self, engine: &Engine) {
        engine.wakeups().wait_for_dispatcher().await;
        // The next pass looks for queues again.
        self.memory.lock().await.listed_queues_at = None;
    }

    async fn pass(&self, engine: &Engine) -> Result<Pass, StoreError> {
        // Held during the pass. No one waits for it: the job is in a pass or in `woken`.
        let mut memory = self.memory.lock().await;
        let now = Instant::now();

        // Set first, so that it also holds after an error of the store.
        self.set_rest(RETRY);
        let rest = match engine.broker() {
            Some(broker) if engine.is_broker_up() => {
                memory.dispatch(engine, &**broker, now).await?
            }
            // A broker that comes back may have lost everything.
            Some(_) | None => {
                *memory = Memory::default();
                RETRY
            }
        };

        self.set_rest(rest);
        Ok(Pass::Clear)
    }
}

impl Dispatcher {
    fn set_rest(&self, rest: Duration) {
        let rest_ms = u64::try_from(rest.as_millis()).unwrap_or(u64::MAX);
        self.rest_ms.store(rest_ms, Ordering::Relaxed);
    }
}

impl Memory {
    /// Dispatches every queue whose time has come. Returns how long to rest.
    async fn dispatch(
        &mut self,
        engine: &Engine,
        broker: &dyn Broker,
        now: Instant,
    ) -> Result<Duration, StoreError> {
        if self
            .last_pass
            .is_some_and(|at| now.duration_since(at) > OUT_OF_DATE)
        {
            *self = Self::default();
        }
        self.last_pass = Some(now);

        if self
            .listed_queues_at
            .is_none_or(|at| now.duration_since(at) >= IDLE)
        {
            self.list_queues(engine, now).await?;
        }

        let is_due = |queue: &Queue| queue.plan_at.is_some_and(|at| at <= now);
        let due = self.queues.iter().filter(|(_, queue)| is_due(queue));
        let names: Vec<QueueName> = due.map(|(name, _)| name.clone()).collect();
        for name in names {
            if self.is_declared(broker, &name).await {
                self.dispatch_queue(engine, broker, &name).await?;
            }
        }

        self.report_backlogged(engine, now);
        let next = self.queues.values().filter_map(|queue| queue.plan_at).min();
        Ok(match next {
            Some(at) => at.saturating_duration_since(Instant::now()),
            None => IDLE,
        })
    }

    /// Finds the queues with due tasks, and forgets those that have had none for a while.
    async fn list_queues(&mut self, engine: &Engine, now: Instant) -> Result<(), StoreError> {
        let heads = engine.queues().list_heads().await?;
        self.listed_queues_at = Some(now);

        let names: BTreeSet<QueueName> = heads.into_iter().map(|head| head.queue).collect();
        for name in names {
            let queue = self.queues.entry(name).or_insert(Queue {
                window: DispatchWindow::default(),
                plan_at: None,
                had_work_at: now,
            });
            queue.plan_at = Some(queue.plan_at.unwrap_or(now).min(now));
        }

        self.queues
            .retain(|_, queue| now.duration_since(queue.had_work_at) < REMEMBER);
        Ok(())
    }

    /// Declares the queue where it is missing. Returns whether hints for it can be published.
    async fn is_declared(&mut self, broker: &dyn Broker, name: &QueueName) -> bool {
        if self.declared.contains(name) {
            return true;
        }

        match broker.declare(&[name.to_string()]).await {
            Ok(()) => self.declared.insert(name.clone()),
            Err(BrokerError::Unavailable(_)) => false,
            // Hints may still arrive. Those that do not are refused, and the task is given up.
            Err(error @ BrokerError::Topology(_)) => {
                tracing::warn!(
                    %error,
                    queue = name.as_str(),
                    "the broker's topology differs; publishing hints anyway"
                );
                true
            }
        }
    }

    async fn dispatch_queue(
        &mut self,
        engine: &Engine,
        broker: &dyn Broker,
        name: &QueueName,
    ) -> Result<(), StoreError> {
        let Some(queue) = self.queues.get_mut(name) else {
            return Ok(());
        };
        let (listed, unclaimed) = tokio::join!(
            engine.queues().list_due(name, queue.window.list_limit()),
            broker.depth(name)
        );
        let listed = listed?;
        let now = Instant::now();
        let Ok(unclaimed) = unclaimed else {
            self.declared.remove(name);
            queue.plan_at = Some(now + RETRY);
            return Ok(());
        };

        let plan = queue.window.plan(now, &listed, unclaimed);
        queue.plan_at = plan.next_in.map(|next_in| now + next_in);
        if !listed.is_empty() {
            queue.had_work_at = now;
        }
        if plan.publish.is_empty() {
            return Ok(());
        }

        let chosen = plan.publish.iter().filter_map(|index| listed.get(*index));
        let hints: Vec<Hint> = chosen.cloned().collect();
        let outcomes = broker.publish_hints(&hints).await;
        engine.metrics().hints_published(hints.len(), plan.repeated);

        let mut refusal = None;
        for (hint, outcome) in hints.iter().zip(outcomes) {
            queue.window.published(now, hint.task_id, &outcome);
            if let Published::Refused(reason) = outcome {
                refusal = Some(reason);
            }
        }

        if let Some(reason) = refusal {
            self.declared.remove(name);
            let given_up = queue.window.take_given_up();
            engine.give_up(name, &given_up, &reason).await?;
        }
        Ok(())
    }

    /// Reports the backlogged queues to all nodes: on every change, and once a second for nodes
    /// that missed it.
    fn report_backlogged(&mut self, engine: &Engine, now: Instant) {
        let backlogged = self
            .queues
            .iter()
            .filter(|(_, queue)| queue.window.is_backlogged());
        let queues: Vec<String> = backlogged.map(|(name, _)| name.to_string()).collect();

        let is_reported = self
            .reported
            .as_ref()
            .is_some_and(|(at, before)| *before == queues && now.duration_since(*at) < IDLE);
        if !is_reported {
            engine.report_backlogged(queues.clone());
            self.reported = Some((now, queues));
        }
    }
}
