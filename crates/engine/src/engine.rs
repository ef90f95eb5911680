//! The engine: the store, and whoever must hear of a change to it.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use longhaul_domain::{
    Json, Lease, NewTask, Status, StoreError, Task, TaskId,
    contract::{
        Broker, Doorbell, EventBus, ProgressCache, Store, broker::BrokerState,
        progress_cache::HotProgress, store::Verdict,
    },
    event::{EventKind, TaskEvent},
};
use tokio::{sync::Notify, time::Instant};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    dependency::Dependency,
    direct_ring::DirectRing,
    hot::HotTasks,
    local_node::LocalNode,
    measured::MeasuredStore,
    metrics::Metrics,
    parts::Parts,
    progress_feed::ProgressFeed,
    signals,
    store_time::StoreTime,
    tiers::{TierSource, Tiers},
    turns::Turns,
};

/// Ends that are remembered, so that one that is told twice is counted once.
const COUNTED_ENDS: usize = 1_000;

/// The last of them, with the versions that they left.
#[derive(Debug, Default)]
struct RecentEnds {
    all: HashSet<(TaskId, u64)>,
    oldest_first: VecDeque<(TaskId, u64)>,
}

impl RecentEnds {
    /// Whether it was not there.
    fn add(&mut self, end: (TaskId, u64)) -> bool {
        let is_new = self.all.insert(end);
        if is_new {
            self.oldest_first.push_back(end);
        }
        if self.oldest_first.len() > COUNTED_ENDS
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            self.all.remove(&oldest);
        }
        is_new
    }
}

#[derive(Debug, Clone, Copy)]
struct Touch {
    since: Instant,
    last: Instant,
    /// The longest silence that is not a break.
    most: Duration,
}

impl Touch {
    fn after(before: Option<Self>, now: Instant, most: Duration) -> Self {
        let unbroken = before.filter(|before| now.duration_since(before.last) <= before.most);
        Self {
            since: unbroken.map_or(now, |before| before.since),
            last: now,
            most,
        }
    }

    /// Nothing while the silence is too long: whoever asks then is there before the next answer has come.
    fn lasts_for(self, now: Instant) -> Duration {
        match now.duration_since(self.last) <= self.most {
            true => now.duration_since(self.since),
            false => Duration::ZERO,
        }
    }
}

/// What commands, executors and servers of one process share.
#[derive(Debug)]
pub struct Engine {
    pub store: Arc<dyn Store>,
    pub bus: Arc<dyn EventBus>,
    pub doorbell: Arc<dyn Doorbell>,
    /// Rings across processes, where there is one. Without it, or while it is away, nodes look into the store.
    pub broker: Option<Arc<dyn Broker>>,
    /// How far the tasks are that run elsewhere; where others read it, also those that run here.
    pub progress_cache: Option<Arc<dyn ProgressCache>>,
    pub metrics: Arc<Metrics>,
    /// Tells a shared progress cache what runs here.
    feed: Option<(Arc<ProgressFeed>, AbortOnDropHandle<()>)>,
    /// Rings over the broker for what this process makes claimable.
    pub(crate) direct_ring: Option<Arc<DirectRing>>,
    /// Hears what other nodes tell.
    listener: OnceLock<AbortOnDropHandle<()>>,
    /// What time it is in the store, as far as this process knows.
    pub store_time: StoreTime,
    node: OnceLock<Weak<dyn LocalNode>>,
    counted_ends: Mutex<RecentEnds>,
    pub(crate) hot: HotTasks,
    /// Where new tasks join their line; nothing where nobody waits for anybody.
    turns: OnceLock<Arc<Turns>>,
    /// Who knows the tiers of owners.
    tiers: OnceLock<Tiers>,
    /// What this process can do without for a while.
    dependencies: OnceLock<Vec<Arc<dyn Dependency>>>,
    /// Since when this process has been in touch with its store without a break. Nothing where nobody takes note.
    in_touch: Mutex<Option<Touch>>,
    /// Rung when this process has changed something that a running handler should hear of.
    pub look_at_leases: Notify,
    /// Rung when there may be something new to ring for: the ringer of this process looks, if it has the duty.
    pub(crate) look_at_lanes: Notify,
    /// Rung when the ringer has said that it holds a queue: the claimer of this process takes from the store.
    pub look_at_backlog: Notify,
}

impl Engine {
    /// An engine of one process, without a broker. [`Parts`] makes others.
    pub fn new(
        store: Arc<dyn Store>,
        bus: Arc<dyn EventBus>,
        doorbell: Arc<dyn Doorbell>,
    ) -> Arc<Self> {
        Parts::new(store, bus, doorbell).build()
    }

    pub(crate) fn from_parts(parts: Parts) -> Arc<Self> {
        let Parts {
            store,
            bus,
            doorbell,
            broker,
            progress_cache,
        } = parts;
        let metrics = Arc::new(Metrics::default());
        let store: Arc<dyn Store> = Arc::new(MeasuredStore::new(store, Arc::clone(&metrics)));
        let direct_ring = broker
            .as_ref()
            .map(|broker| DirectRing::new(Arc::clone(broker), Arc::clone(&metrics)));
        let engine = Arc::new(Self {
            store,
            bus,
            doorbell,
            broker,
            feed: progress_cache
                .clone()
                .filter(|cache| cache.is_shared())
                .map(start_feed),
            progress_cache,
            metrics,
            direct_ring,
            listener: OnceLock::new(),
            store_time: StoreTime::default(),
            node: OnceLock::new(),
            counted_ends: Mutex::default(),
            hot: HotTasks::default(),
            turns: OnceLock::new(),
            tiers: OnceLock::new(),
            dependencies: OnceLock::new(),
            in_touch: Mutex::default(),
            look_at_leases: Notify::new(),
            look_at_lanes: Notify::new(),
            look_at_backlog: Notify::new(),
        });
        if let Some(broker) = &engine.broker {
            let listening =
                tokio::spawn(signals::listen(broker.signals(), Arc::downgrade(&engine)));
            // Set by nobody else.
            let _ = engine.listener.set(AbortOnDropHandle::new(listening));
        }
        engine
    }

    /// Whether bells travel over a broker now.
    pub fn is_broker_up(&self) -> bool {
        self.broker
            .as_ref()
            .is_some_and(|broker| broker.state() == BrokerState::Up)
    }

    /// Whether more waits in this queue than bells are rung for: whoever has a slot takes from the store.
    pub fn is_held(&self, queue: &str) -> bool {
        self.direct_ring
            .as_ref()
            .is_some_and(|ring| ring.is_held(queue))
    }

    /// Makes the node of this process known. The first one counts.
    pub fn set_local_node(&self, node: Weak<dyn LocalNode>) {
        if self.node.set(node).is_err() {
            tracing::debug!("this process has a second node, which nobody asks");
        }
    }

    /// The node of this process, if it has one that still works.
    pub fn local_node(&self) -> Option<Arc<dyn LocalNode>> {
        self.node.get().and_then(Weak::upgrade)
    }

    /// Whether the node of this process shuts down, or has. A process without one never does.
    pub fn is_draining(&self) -> bool {
        self.node
            .get()
            .is_some_and(|node| node.upgrade().is_none_or(|node| node.is_draining()))
    }

    /// From now on owners take turns in every queue.
    pub fn take_turns(&self) {
        self.turns
            .get_or_init(|| Turns::new(Arc::clone(&self.store)));
    }

    /// Gives tasks that are due at once their places in line, where owners take turns.
    pub(crate) async fn place(&self, tasks: &mut [NewTask]) {
        if let Some(turns) = self.turns.get() {
            turns.place(tasks).await;
        }
    }

    /// Makes known who knows the tiers of owners. The first one counts.
    pub fn set_tier_source(&self, source: Arc<dyn TierSource>) {
        self.tiers.get_or_init(|| Tiers::new(source));
    }

    /// Makes known what this process can do without for a while. The first call counts.
    pub fn set_dependencies(&self, dependencies: Vec<Arc<dyn Dependency>>) {
        self.dependencies.get_or_init(|| dependencies);
    }

    /// What is away now, by name. The work goes on without it.
    pub fn missing(&self) -> Vec<&'static str> {
        let all = self.dependencies.get().map_or(&[][..], Vec::as_slice);
        all.iter()
            .filter(|dependency| !dependency.is_up())
            .map(|dependency| dependency.name())
            .collect()
    }

    /// The owner's tier, as far as anybody here knows.
    pub async fn tier_of(&self, owner: &str) -> Option<String> {
        self.tiers.get()?.tier_of(owner).await
    }

    /// Counts a piece of news, and answers with whether anybody may hear it: only then it is to be made and published.
    pub(crate) fn note_news(&self, event: EventKind, id: TaskId, owner: &str) -> bool {
        self.metrics.events.published(event);
        self.bus.is_heard(id, owner)
    }

    /// Counts an end that is known by its task. Answers with whether it is new here.
    fn count_end(&self, task: &Task) -> bool {
        let is_new = self
            .counted_ends
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .add((task.id, task.version));
        if is_new {
            self.metrics.ended(&task.task_type, task.status, 1);
        }
        is_new
    }

    /// Tells the listeners what happened to `task`, which is as the store has it. An end is told once. Answers with whether
    /// this is news.
    pub fn tell(&self, task: &Task, event: EventKind) -> bool {
        if task.status.is_ended() && !self.count_end(task) {
            return false;
        }
        if !self.note_news(event, task.id, &task.owner) {
            return true;
        }
        self.bus.publish(TaskEvent {
            task_id: task.id,
            owner: task.owner.clone(),
            task_type: task.task_type.clone(),
            event,
            status: task.status,
            attempt: task.attempt,
            version: task.version,
            sequence: 0,
            progress: None,
            error: task.error.as_ref().map(|error| error.message.clone()),
            correlation_id: task.correlation_id.clone(),
        });
        true
    }

    /// Notes the newest progress of a running task and tells the listeners at once; the store hears later.
    pub fn note_progress(&self, task: &Task, progress: serde_json::Value) {
        let (sequence, writes) = self.hot.report(task.id, task.attempt, progress.clone());
        if let Some((feed, _)) = &self.feed {
            feed.report(
                task.id,
                HotProgress {
                    attempt: task.attempt,
                    sequence,
                    progress: progress.clone(),
                },
            );
        }
        if !self.note_news(EventKind::Progress, task.id, &task.owner) {
            return;
        }
        self.bus.publish(TaskEvent {
            task_id: task.id,
            owner: task.owner.clone(),
            task_type: task.task_type.clone(),
            event: EventKind::Progress,
            status: Status::Running,
            attempt: task.attempt,
            version: task.version + writes,
            sequence,
            progress: Some(progress),
            error: None,
            correlation_id: task.correlation_id.clone(),
        });
    }

    /// Notes that the store has answered a heartbeat. If the next one takes longer than `most`, it counts as away until
    /// then.
    pub fn note_touch(&self, most: Duration) {
        let mut touch = self.in_touch.lock().unwrap_or_else(PoisonError::into_inner);
        *touch = Some(Touch::after(*touch, Instant::now(), most));
    }

    /// How long the store has answered without a break, if anybody takes note.
    pub fn in_touch_for(&self) -> Option<Duration> {
        let touch = *self.in_touch.lock().unwrap_or_else(PoisonError::into_inner);
        touch.map(|touch| touch.lasts_for(Instant::now()))
    }

    /// Brings the progress of tasks that run here into the store.
    pub async fn save_progress(
        &self,
        reports: &[(Lease, Json)],
    ) -> Result<Vec<Verdict>, StoreError> {
        reports
            .iter()
            .for_each(|(lease, _)| self.hot.writes_if_running(lease));
        let verdicts = self.store.save_progress(reports).await?;
        reports
            .iter()
            .zip(&verdicts)
            .for_each(|((lease, _), verdict)| self.hot.answered(lease, *verdict));
        Ok(verdicts)
    }

    /// Saves what the next attempt of a task that runs here starts from.
    pub async fn save_checkpoint(
        &self,
        lease: &Lease,
        checkpoint: &Json,
    ) -> Result<Verdict, StoreError> {
        self.hot.writes(lease);
        let verdict = self.store.save_checkpoint(lease, checkpoint).await?;
        self.hot.answered(lease, verdict);
        Ok(verdict)
    }

    /// The newest progress of a task that runs here.
    pub fn hot_progress(&self, id: TaskId) -> Option<serde_json::Value> {
        self.hot.progress(id)
    }

    /// Forgets the progress of an attempt that no longer runs here. What a later one has told stays.
    pub fn forget_progress(&self, lease: &Lease) {
        let has_reported = self.hot.forget(lease);
        if let Some((feed, _)) = self.feed.as_ref().filter(|_| has_reported) {
            feed.forget(lease.task_id);
        }
    }
}

fn start_feed(cache: Arc<dyn ProgressCache>) -> (Arc<ProgressFeed>, AbortOnDropHandle<()>) {
    let feed = Arc::new(ProgressFeed::default());
    let feeding = tokio::spawn(Arc::clone(&feed).run(cache));
    (feed, AbortOnDropHandle::new(feeding))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_that_is_too_long_starts_the_time_in_touch_anew() {
        let (start, most) = (Instant::now(), Duration::from_secs(15));
        let at = |seconds| start + Duration::from_secs(seconds);
        let first = Touch::after(None, at(0), most);
        let second = Touch::after(Some(first), at(15), most);
        assert_eq!(second.since, start);
        assert_eq!(Touch::after(Some(second), at(31), most).since, at(31));
    }

    #[test]
    fn a_silence_that_is_too_long_counts_before_anybody_has_ended_it() {
        let (start, most) = (Instant::now(), Duration::from_secs(15));
        let touch = Touch {
            since: start,
            last: start + most,
            most,
        };
        assert_eq!(touch.lasts_for(start + most * 2), most * 2);
        assert_eq!(
            touch.lasts_for(start + most * 2 + Duration::from_millis(1)),
            Duration::ZERO
        );
    }
}
