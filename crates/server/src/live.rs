//! Live updates of tasks: the current state first, then each change, until the client disconnects
//! or the server stops.
//!
//! The event bus says that something happened; the store says what. A client therefore sees the
//! task's own version. Events may be lost: a subscriber that lags receives the current state again,
//! and every stream polls the store from time to time (see [`missed_changes`]). The queue of
//! messages is bounded by what one read of the store returns.

pub(crate) mod missed_changes;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use longhaul_api::{Page, TaskEventView, TaskSummary};
use longhaul_domain::{
    Status, StoreError, TaskId, TaskRecord,
    contract::{
        event_bus::{EventStream, Received, Subscription},
        store::Access,
    },
    event::{EventKind, TaskEvent},
    filter::{self, PageRequest, SortOrder, TaskFilter},
};
use longhaul_engine::metrics::Listener;
use tokio::time::Instant;

use crate::{api::Api, cursor, handlers::show_live_progress, observe::OpenStream};

/// How often an idle stream sends a heartbeat.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);
/// When a client that lost its connection should reconnect.
pub(crate) const RECONNECT_AFTER: Duration = Duration::from_secs(2);
/// Tasks in the first message of an owner's stream.
const STATE_TASKS: usize = 200;
/// Tasks whose versions one stream caches. A full cache is cleared, which costs one read per task.
const CACHED_TASKS: usize = 10_000;
/// How long a cached version is good enough for progress events, which are frequent.
const CACHE_TTL: Duration = Duration::from_secs(1);

/// A message for the client.
#[derive(Debug)]
pub(crate) enum LiveMessage {
    State(Box<TaskSummary>),
    States(Page<TaskSummary>),
    Event {
        id: String,
        event: Box<TaskEventView>,
    },
}

/// Follows one task, several, or all that the caller may see.
#[derive(Debug)]
pub(crate) struct Follower {
    api: Arc<Api>,
    access: Access,
    follows_all: bool,
    tasks: HashSet<TaskId>,
    events: Box<dyn EventStream>,
    seen: HashMap<TaskId, SeenTask>,
    pending: VecDeque<LiveMessage>,
    _open: OpenStream,
}

/// What the store last said of a task.
#[derive(Debug, Clone, Copy)]
struct SeenTask {
    version: u64,
    attempt: u32,
    is_ended: bool,
    at: Instant,
}

impl SeenTask {
    fn of(task: &TaskRecord) -> Self {
        Self {
            version: task.version,
            attempt: task.attempt,
            is_ended: task.status.is_ended(),
            at: Instant::now(),
        }
    }
}

impl Follower {
    /// Subscribes to the bus, of one task alone if it is named. The subscription starts before the
    /// first read, so that no change falls between them.
    pub(crate) fn start(api: Arc<Api>, access: Access, task_id: Option<TaskId>) -> Self {
        let owner = match &access {
            // The first read decides whether the caller may see a single task.
            Access::Owner(owner) if task_id.is_none() => Some(owner.clone()),
            Access::Owner(_) | Access::All => None,
        };
        let events = api.engine.subscribe(Subscription { task_id, owner });
        let _open = api.http.open_stream();

        Self {
            api,
            access,
            follows_all: false,
            tasks: HashSet::new(),
            events,
            seen: HashMap::new(),
            pending: VecDeque::new(),
            _open,
        }
    }

    /// Follows a task and queues its state. A task that the caller may not see is `NotFound`.
    pub(crate) async fn follow_task(&mut self, id: TaskId) -> Result<(), StoreError> {
        self.show_task(id).await?;
        self.tasks.insert(id);
        Ok(())
    }

    /// Follows all of the caller's tasks and queues the state of the open ones.
    pub(crate) async fn follow_all(&mut self) -> Result<(), StoreError> {
        self.show_open_tasks().await?;
        self.follows_all = true;
        Ok(())
    }

    pub(crate) fn unfollow_task(&mut self, id: TaskId) {
        if !self.follows_all {
            self.seen.remove(&id);
        }
        self.tasks.remove(&id);
    }

    pub(crate) fn unfollow_all(&mut self) {
        self.follows_all = false;
    }

    pub(crate) fn followed_tasks(&self) -> usize {
        self.tasks.len()
    }

    /// The next queued message.
    pub(crate) fn take(&mut self) -> Option<LiveMessage> {
        self.pending.pop_front()
    }

    /// Waits for the bus; `None` when it has closed. Cancel safe.
    pub(crate) async fn receive(&mut self) -> Option<Received> {
        self.events.next().await
    }

    /// Queues what the received event means for the client. `NotFound`: retention has removed the
    /// only followed task.
    pub(crate) async fn apply(&mut self, received: Received) -> Result<(), StoreError> {
        match received {
            Received::Event(event) if self.follows_all || self.tasks.contains(&event.task_id) => {
                self.push_event(event).await
            }
            Received::Event(_) => Ok(()),
            Received::Missed(_) => self.show_all().await,
        }
    }

    /// Reads the store and queues what changed without an event.
    pub(crate) async fn poll_changes(&mut self) -> Result<(), StoreError> {
        for id in self.tasks.clone() {
            let before = self.seen.get(&id).map(|seen| seen.version);
            match self.read(id).await {
                Ok(task) if before == Some(task.version) => {}
                Ok(task) => self.push_state(task).await,
                Err(StoreError::NotFound) => self.forget(id)?,
                Err(error) => return Err(error),
            }
        }

        if self.follows_all {
            self.poll_open_tasks().await?;
        }
        Ok(())
    }

    /// Unfollows a task that retention has removed. `NotFound` if nothing else is followed.
    fn forget(&mut self, id: TaskId) -> Result<(), StoreError> {
        self.unfollow_task(id);
        if self.follows_all || !self.tasks.is_empty() {
            Ok(())
        } else {
            Err(StoreError::NotFound)
        }
    }

    async fn show_all(&mut self) -> Result<(), StoreError> {
        for id in self.tasks.clone() {
            match self.show_task(id).await {
                Err(StoreError::NotFound) => self.forget(id)?,
                shown => shown?,
            }
        }

        if self.follows_all {
            self.show_open_tasks().await?;
        }
        Ok(())
    }

    async fn show_task(&mut self, id: TaskId) -> Result<(), StoreError> {
        let task = self.read(id).await?;
        self.push_state(task).await;
        Ok(())
    }

    async fn push_state(&mut self, mut task: TaskRecord) {
        show_live_progress(&self.api, std::slice::from_mut(&mut task)).await;
        let state = LiveMessage::State(Box::new(TaskSummary::from(task)));
        self.pending.push_back(state);
    }

    async fn show_open_tasks(&mut self) -> Result<(), StoreError> {
        let mut found = self.open_tasks().await?;
        for task in &found.items {
            self.remember(task);
        }
        show_live_progress(&self.api, &mut found.items).await;

        let next_cursor = found
            .next
            .map(|id| cursor::of_task(SortOrder::NewestFirst, id));
        let items = found.items.into_iter().map(TaskSummary::from).collect();
        self.pending
            .push_back(LiveMessage::States(Page { items, next_cursor }));
        Ok(())
    }

    /// The newest of the caller's open tasks.
    async fn open_tasks(&mut self) -> Result<filter::Page<TaskRecord>, StoreError> {
        let statuses = Status::ALL.into_iter().filter(|status| !status.is_ended());
        let open = TaskFilter {
            statuses: statuses.collect(),
            ..TaskFilter::default()
        };

        let page = PageRequest::first(STATE_TASKS);
        let store = self.api.engine.reads();
        store.list_tasks(&self.access, &open, &page).await
    }

    async fn push_event(&mut self, event: TaskEvent) -> Result<(), StoreError> {
        let (seen, status) = match self.cached_for(&event) {
            Some(seen) => (seen, event.status),
            None => match self.read(event.task_id).await {
                Ok(task) => (SeenTask::of(&task), task.status),
                Err(StoreError::NotFound) => return self.forget(event.task_id),
                Err(error) => return Err(error),
            },
        };

        let is_late = seen.attempt > event.attempt || seen.is_ended;
        if event.event == EventKind::Progress && is_late {
            return Ok(());
        }

        let version = seen.version.max(event.version);
        self.queue_event(TaskEvent {
            status,
            attempt: seen.attempt,
            version,
            ..event
        });
        Ok(())
    }

    /// The cached version, if it is good enough for this event.
    fn cached_for(&self, event: &TaskEvent) -> Option<SeenTask> {
        let seen = *self.seen.get(&event.task_id)?;
        let is_current = seen.attempt == event.attempt && seen.at.elapsed() < CACHE_TTL;
        (event.event == EventKind::Progress && is_current).then_some(seen)
    }

    fn queue_event(&mut self, event: TaskEvent) {
        let metrics = self.api.engine.metrics();
        metrics.processed(Listener::Live, event.event);
        self.pending.push_back(LiveMessage::Event {
            id: event.id(),
            event: Box::new(TaskEventView::from(event)),
        });
    }

    async fn read(&mut self, id: TaskId) -> Result<TaskRecord, StoreError> {
        let task = self.api.engine.reads().get_task(&self.access, id).await?;
        self.remember(&task);
        Ok(task)
    }

    fn remember(&mut self, task: &TaskRecord) {
        if self.seen.len() >= CACHED_TASKS {
            self.seen.clear();
        }
        self.seen.insert(task.id, SeenTask::of(task));
    }
}
