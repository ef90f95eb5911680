//! The ringer: has the broker ring for what waits in the store, in the store's order, and never for much at once.
//!
//! A waiting row is the wish to be rung for; there is no other list. The ringer looks at the head of each queue and at
//! how many bells the broker still has of it. What to ring for is decided by [`Lane`]; here it is asked, rung and told.
//! All of its memory may be lost: then some bells ring twice.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::{
    StoreError, TaskId, bounds,
    contract::{
        Broker,
        broker::{Bell, BrokerError, Published, Signal},
        store::Failure,
    },
    event::EventKind,
};
use tokio::{sync::Mutex, time::Instant};

use crate::{
    Engine,
    ringing::Lane,
    service::{Duty, Pass},
};

/// How often it looks for queues that have work, and says which it holds.
const IDLE: Duration = Duration::from_secs(1);
/// How often it tries again while broker or store do not answer.
const AWAY: Duration = Duration::from_millis(200);
/// A rest is over a little too early rather than a little too late.
const LEAST_REST: Duration = Duration::from_millis(5);
/// How long what is known of an empty queue is kept: its speed may be of use soon.
const KEPT: Duration = Duration::from_secs(60);
/// A ringer that has not looked for so long was not the ringer meanwhile, and knows nothing.
const OUT_OF_DATE: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug, Default)]
pub struct Ringer {
    memory: Mutex<Memory>,
    rest_ms: AtomicU64,
}

#[derive(Debug, Default)]
struct Memory {
    queues: BTreeMap<String, Queue>,
    declared: HashSet<String>,
    looked_for_queues: Option<Instant>,
    looked_at: Option<Instant>,
    /// What was said about held queues, and when.
    said: Option<(Instant, Vec<String>)>,
}

#[derive(Debug)]
struct Queue {
    lane: Lane,
    /// When to look at it next; nothing while nothing waits there.
    look_at: Option<Instant>,
    had_work_at: Instant,
}

#[async_trait]
impl Duty for Ringer {
    fn name(&self) -> &'static str {
        "ringer"
    }

    fn every(&self) -> Duration {
        IDLE
    }

    /// What is rung for starts when it is heard.
    fn is_urgent(&self) -> bool {
        true
    }

    fn rest(&self) -> Duration {
        Duration::from_millis(self.rest_ms.load(Ordering::Relaxed)).clamp(LEAST_REST, IDLE)
    }

    async fn woken(&self, engine: &Engine) {
        engine.look_at_lanes.notified().await;
        let mut memory = self.memory.lock().await;
        memory.looked_for_queues = None;
    }

    async fn pass(&self, engine: &Engine) -> Result<Pass, StoreError> {
        let mut memory = self.memory.lock().await;
        let now = Instant::now();
        // A store that does not answer is not asked all the time.
        self.rest_for(AWAY);
        let rest = match &engine.broker {
            Some(broker) if engine.is_broker_up() => memory.look(engine, &**broker, now).await?,
            // A broker that comes back may have lost everything.
            Some(_) | None => {
                *memory = Memory::default();
                AWAY
            }
        };
        self.rest_for(rest);
        Ok(Pass::Clear)
    }
}

impl Ringer {
    fn rest_for(&self, rest: Duration) {
        self.rest_ms.store(
            u64::try_from(rest.as_millis()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
    }
}

impl Memory {
    /// Looks at every queue whose time has come. Answers with how long to rest.
    async fn look(
        &mut self,
        engine: &Engine,
        broker: &dyn Broker,
        now: Instant,
    ) -> Result<Duration, StoreError> {
        if self
            .looked_at
            .replace(now)
            .is_some_and(|at| now.duration_since(at) > OUT_OF_DATE)
        {
            *self = Self {
                looked_at: Some(now),
                ..Self::default()
            };
        }
        if self
            .looked_for_queues
            .is_none_or(|at| now.duration_since(at) >= IDLE)
        {
            self.look_for_queues(engine, now).await?;
        }
        let due = |queue: &Queue| queue.look_at.is_some_and(|at| at <= now);
        let names: Vec<String> = self
            .queues
            .iter()
            .filter(|(_, queue)| due(queue))
            .map(|(name, _)| name.clone())
            .collect();
        for name in names {
            if self.is_declared(broker, &name).await {
                self.look_at_queue(engine, broker, &name).await?;
            }
        }
        self.say_what_is_held(engine, now);
        let now = Instant::now();
        let next = self.queues.values().filter_map(|queue| queue.look_at).min();
        Ok(next.map_or(IDLE, |at| at.saturating_duration_since(now)))
    }

    /// Every queue that has due tasks is looked at; what is known of others is kept for a while.
    async fn look_for_queues(&mut self, engine: &Engine, now: Instant) -> Result<(), StoreError> {
        let heads = engine.store.list_heads().await?;
        self.looked_for_queues = Some(now);
        for name in heads
            .into_iter()
            .map(|head| head.queue)
            .collect::<BTreeSet<_>>()
        {
            let queue = self.queues.entry(name).or_insert(Queue {
                lane: Lane::default(),
                look_at: None,
                had_work_at: now,
            });
            queue.look_at = Some(queue.look_at.unwrap_or(now).min(now));
        }
        self.queues
            .retain(|_, queue| now.duration_since(queue.had_work_at) < KEPT);
        Ok(())
    }

    /// Whether it is worth to ring. The queue is made where it is missing.
    async fn is_declared(&mut self, broker: &dyn Broker, name: &str) -> bool {
        if self.declared.contains(name) {
            return true;
        }
        match broker.declare(&[name.to_owned()]).await {
            Ok(()) => self.declared.insert(name.to_owned()),
            Err(BrokerError::Unavailable(_)) => false,
            // Bells may still find their way. Those that do not are refused, and that has an end.
            Err(error @ BrokerError::Topology(_)) => {
                tracing::warn!(%error, queue = name, "the broker's queue or exchanges are not as they should be");
                true
            }
        }
    }

    async fn look_at_queue(
        &mut self,
        engine: &Engine,
        broker: &dyn Broker,
        name: &str,
    ) -> Result<(), StoreError> {
        let Some(queue) = self.queues.get_mut(name) else {
            return Ok(());
        };
        let (waiting, depth) = tokio::join!(
            engine.store.list_due(name, queue.lane.window()),
            broker.depth(name)
        );
        let (waiting, now) = (waiting?, Instant::now());
        let Ok(depth) = depth else {
            self.declared.remove(name);
            queue.look_at = Some(now + AWAY);
            return Ok(());
        };
        let look = queue.lane.look(now, &waiting, depth);
        queue.look_at = look.next_in.map(|next_in| now + next_in);
        if !waiting.is_empty() {
            queue.had_work_at = now;
        }
        if look.ring.is_empty() {
            return Ok(());
        }
        let bells: Vec<Bell> = look
            .ring
            .iter()
            .filter_map(|index| waiting.get(*index))
            .cloned()
            .collect();
        let published = broker.ring(&bells).await;
        engine.metrics.broker.rung(bells.len());
        engine.metrics.broker.rung_again(look.again);
        let mut reason = None;
        for (bell, published) in bells.iter().zip(&published) {
            queue.lane.published(now, bell.task_id, published);
            if let Published::Refused(why) = published {
                reason = Some(why.clone());
            }
        }
        if let Some(reason) = reason {
            self.declared.remove(name);
            give_up(engine, name, queue.lane.given_up(), &reason).await?;
        }
        Ok(())
    }

    /// On every change, and now and then for those who have not heard.
    fn say_what_is_held(&mut self, engine: &Engine, now: Instant) {
        let held: Vec<String> = self
            .queues
            .iter()
            .filter(|(_, queue)| queue.lane.is_held())
            .map(|(name, _)| name.clone())
            .collect();
        let is_said = self
            .said
            .as_ref()
            .is_some_and(|(at, said)| *said == held && now.duration_since(*at) < IDLE);
        if !is_said {
            engine.tell_nodes(Signal::Held {
                queues: held.clone(),
            });
            self.said = Some((now, held));
        }
    }
}

/// No node can ever hear of these tasks: they end with the reason (R32).
async fn give_up(
    engine: &Engine,
    queue: &str,
    ids: Vec<TaskId>,
    reason: &str,
) -> Result<(), StoreError> {
    if ids.is_empty() {
        return Ok(());
    }
    tracing::error!(
        queue,
        reason,
        tasks = ids.len(),
        "the broker refuses to ring for tasks, which fail for it"
    );
    let message = format!("could not be dispatched: {reason}");
    let failure = Failure {
        class: "not_dispatched".to_owned(),
        message,
        detail: None,
    };
    for ids in ids.chunks(bounds::MAINTENANCE_BATCH) {
        let failed = engine.store.fail_waiting(ids, &failure).await?;
        engine.metrics.broker.not_dispatched(failed.len());
        let mut parents = BTreeSet::new();
        for id in failed {
            parents.extend(
                engine
                    .tell_of(id, EventKind::Failed)
                    .await
                    .and_then(|task| task.parent_id),
            );
        }
        engine.look_at_parents(parents).await;
    }
    Ok(())
}
