//! Live news: the current state first, then what changes, until the client leaves or the server stops.
//!
//! The bus tells that something happened; what a client is told comes from the store, so that its version is the task's
//! own. News may be lost: a listener that lags is told so and shown the current state again, and so is one that has heard
//! nothing for a while when the task has changed meanwhile. Nothing is queued here but what one look brought.

pub(crate) mod unheard;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use longhaul_api::{Page, TaskNews, TaskSummary};
use longhaul_domain::{
    Status, StoreError, Task, TaskId,
    contract::{
        event_bus::{EventStream, Heard, Subscription},
        store::Access,
    },
    event::{EventKind, TaskEvent},
    filter::{self, PageRequest, SortOrder, TaskFilter},
};
use longhaul_engine::metrics::Listener;
use tokio::time::Instant;

use crate::{api::Api, cursor, handlers::show_live_progress, observe::OpenStream};

/// A stream that has nothing to say says so this often, and looks whether it has missed something.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);
/// When a client that lost its connection comes back.
pub(crate) const COME_BACK: Duration = Duration::from_secs(2);
/// Tasks that the state of an owner's stream shows.
const SHOWN: usize = 200;
/// Tasks whose versions one stream remembers. Past it the memory starts anew, which costs a look each.
const REMEMBERED: usize = 10_000;
/// How long a remembered version is good for news of progress, of which there are many.
const FRESH: Duration = Duration::from_secs(1);

/// What a client is to be told.
#[derive(Debug)]
pub(crate) enum Told {
    State(Box<TaskSummary>),
    States(Page<TaskSummary>),
    News { id: String, news: Box<TaskNews> },
}

/// One listener, to one task, to some, or to all that its caller may see.
#[derive(Debug)]
pub(crate) struct Follower {
    api: Arc<Api>,
    access: Access,
    follows_all: bool,
    tasks: HashSet<TaskId>,
    news: Box<dyn EventStream>,
    known: HashMap<TaskId, Known>,
    pending: VecDeque<Told>,
    _open: OpenStream,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    version: u64,
    attempt: u32,
    is_ended: bool,
    at: Instant,
}

impl Follower {
    /// Follows nothing yet, and hears of one task alone if it is named: listening starts here, before any look, so that
    /// nothing can fall between them.
    pub(crate) fn start(api: Arc<Api>, access: Access, task_id: Option<TaskId>) -> Self {
        let owner = match &access {
            // Whose a single task is, the look at it says.
            Access::Owner(owner) if task_id.is_none() => Some(owner.clone()),
            Access::Owner(_) | Access::All => None,
        };
        let news = api.engine.bus.subscribe(Subscription { task_id, owner });
        let (tasks, known, pending) = (HashSet::new(), HashMap::new(), VecDeque::new());
        let _open = api.http.open_stream();
        Self {
            api,
            access,
            follows_all: false,
            tasks,
            news,
            known,
            pending,
            _open,
        }
    }

    /// Follows a task, and has its state ready. One that the caller may not see is not found.
    pub(crate) async fn follow_task(&mut self, id: TaskId) -> Result<(), StoreError> {
        self.show_task(id).await?;
        self.tasks.insert(id);
        Ok(())
    }

    /// Follows all tasks of the caller's, and has the state of those that are open ready.
    pub(crate) async fn follow_all(&mut self) -> Result<(), StoreError> {
        self.show_open_tasks().await?;
        self.follows_all = true;
        Ok(())
    }

    /// Whether the task was followed.
    pub(crate) fn leave_task(&mut self, id: TaskId) -> bool {
        if !self.follows_all {
            self.known.remove(&id);
        }
        self.tasks.remove(&id)
    }

    pub(crate) fn leave_all(&mut self) -> bool {
        std::mem::take(&mut self.follows_all)
    }

    pub(crate) fn followed_tasks(&self) -> usize {
        self.tasks.len()
    }

    /// What a client is to be told next, of what is at hand.
    pub(crate) fn take(&mut self) -> Option<Told> {
        self.pending.pop_front()
    }

    /// Waits for news; `None` when there are none any more. Nothing is lost when the wait is given up.
    pub(crate) async fn hear(&mut self) -> Option<Heard> {
        self.news.next().await
    }

    /// Has ready what the news mean for the client. `NotFound`: retention has removed the only task that is followed.
    pub(crate) async fn digest(&mut self, heard: Heard) -> Result<(), StoreError> {
        match heard {
            Heard::Event(event) if self.follows_all || self.tasks.contains(&event.task_id) => {
                self.tell(event).await
            }
            Heard::Event(_) => Ok(()),
            Heard::Missed(_) => self.show_all().await,
        }
    }

    /// Tells of tasks that have changed without news of it.
    pub(crate) async fn look_again(&mut self) -> Result<(), StoreError> {
        for id in self.tasks.clone() {
            let before = self.known.get(&id).map(|known| known.version);
            match self.look(id).await {
                Ok(task) if before == Some(task.version) => {}
                Ok(task) => self.push_state(task).await,
                Err(StoreError::NotFound) => self.lose(id)?,
                Err(error) => return Err(error),
            }
        }
        if self.follows_all {
            self.look_at_open_tasks().await
        } else {
            Ok(())
        }
    }

    /// Retention has removed a task. It is not found only when nothing else is followed.
    fn lose(&mut self, id: TaskId) -> Result<(), StoreError> {
        self.leave_task(id);
        if self.follows_all || !self.tasks.is_empty() {
            Ok(())
        } else {
            Err(StoreError::NotFound)
        }
    }

    async fn show_all(&mut self) -> Result<(), StoreError> {
        for id in self.tasks.clone() {
            match self.show_task(id).await {
                Err(StoreError::NotFound) => self.lose(id)?,
                shown => shown?,
            }
        }
        if self.follows_all {
            self.show_open_tasks().await
        } else {
            Ok(())
        }
    }

    async fn show_task(&mut self, id: TaskId) -> Result<(), StoreError> {
        let task = self.look(id).await?;
        self.push_state(task).await;
        Ok(())
    }

    async fn push_state(&mut self, mut task: Task) {
        show_live_progress(&self.api, std::slice::from_mut(&mut task)).await;
        self.pending
            .push_back(Told::State(Box::new(TaskSummary::from(task))));
    }

    async fn show_open_tasks(&mut self) -> Result<(), StoreError> {
        let mut found = self.open_tasks().await?;
        found.items.iter().for_each(|task| self.remember(task));
        show_live_progress(&self.api, &mut found.items).await;
        let next_cursor = found
            .next
            .map(|id| cursor::of_task(SortOrder::NewestFirst, id));
        let items = found.items.into_iter().map(TaskSummary::from).collect();
        self.pending
            .push_back(Told::States(Page { items, next_cursor }));
        Ok(())
    }

    /// The newest of the caller's open tasks.
    async fn open_tasks(&mut self) -> Result<filter::Page<Task>, StoreError> {
        let open = TaskFilter {
            statuses: Status::ALL
                .into_iter()
                .filter(|status| !status.is_ended())
                .collect(),
            ..TaskFilter::default()
        };
        self.api
            .engine
            .store
            .list_tasks(&self.access, &open, &PageRequest::first(SHOWN))
            .await
    }

    async fn tell(&mut self, event: TaskEvent) -> Result<(), StoreError> {
        let id = event.task_id;
        let fresh = self.known.get(&id).copied().filter(|known| {
            event.event == EventKind::Progress
                && known.attempt == event.attempt
                && known.at.elapsed() < FRESH
        });
        let (known, status) = match fresh {
            Some(known) => (known, event.status),
            None => match self.look(id).await {
                Ok(task) => (Known::of(&task), task.status),
                Err(StoreError::NotFound) => return self.lose(id),
                Err(error) => return Err(error),
            },
        };
        let is_late = known.attempt > event.attempt || known.is_ended;
        if event.event == EventKind::Progress && is_late {
            return Ok(());
        }
        let version = known.version.max(event.version);
        let told = TaskEvent {
            status,
            attempt: known.attempt,
            version,
            ..event
        };
        self.api
            .engine
            .metrics
            .processed(Listener::Live, told.event);
        self.pending.push_back(Told::News {
            id: told.id(),
            news: Box::new(TaskNews::from(told)),
        });
        Ok(())
    }

    async fn look(&mut self, id: TaskId) -> Result<Task, StoreError> {
        let task = self.api.engine.store.get_task(&self.access, id).await?;
        self.remember(&task);
        Ok(task)
    }

    fn remember(&mut self, task: &Task) {
        if self.known.len() >= REMEMBERED {
            self.known.clear();
        }
        self.known.insert(task.id, Known::of(task));
    }
}

impl Known {
    fn of(task: &Task) -> Self {
        let (version, attempt, is_ended) = (task.version, task.attempt, task.status.is_ended());
        Self {
            version,
            attempt,
            is_ended,
            at: Instant::now(),
        }
    }
}
