//! Live streams: the current state first, then what changes, until the client leaves or the server stops.
//!
//! The bus tells that something happened; what a client is told comes from the store, so that its version is the task's
//! own. News may be lost: a listener that lags is shown the current state again, and so is one that has heard nothing
//! for a while when the task has changed meanwhile. Nothing is queued here but what one look brought.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::Event;
use futures::Stream;
use longhaul_api::{Page, TaskNews, TaskSummary};
use longhaul_domain::{
    Status, StoreError, Task, TaskId,
    contract::{
        event_bus::{EventStream, Heard, Subscription},
        store::Access,
    },
    event::{EventKind, TaskEvent},
    filter::{PageRequest, SortOrder, TaskFilter},
};
use longhaul_engine::metrics::Listener;
use serde::Serialize;
use tokio::time::Instant;

use crate::{api::Api, cursor, handlers::with_progress, observe::OpenStream};

/// A stream that has nothing to say says so this often, and looks whether it has missed something.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// When a client that lost its connection comes back.
const COME_BACK: Duration = Duration::from_secs(2);
/// Tasks that the state of an owner's stream shows.
const SHOWN: usize = 200;
/// Tasks whose versions one stream remembers. Past it the memory starts anew, which costs a look each.
const REMEMBERED: usize = 10_000;
/// How long a remembered version is good for news of progress, of which there are many.
const FRESH: Duration = Duration::from_secs(1);

/// What a stream is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    Task(TaskId),
    Owner,
}

/// One listener.
#[derive(Debug)]
pub(crate) struct Follower {
    api: Arc<Api>,
    access: Access,
    about: About,
    news: Box<dyn EventStream>,
    known: HashMap<TaskId, Known>,
    pending: VecDeque<Event>,
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
    /// Listens, and has the current state ready. A task that the caller may not see is not found.
    pub(crate) async fn start(api: Arc<Api>, access: Access, about: About) -> Result<Self, StoreError> {
        let owner = match &access {
            Access::Owner(owner) => Some(owner.clone()),
            Access::All => None,
        };
        let task_id = match about {
            About::Task(id) => Some(id),
            About::Owner => None,
        };
        // Listening starts before the look, so that nothing can fall between them.
        let news = api.engine.bus.subscribe(Subscription { task_id, owner });
        let (known, pending) = (HashMap::new(), VecDeque::new());
        let mut follower = Self { _open: api.http.open_stream(), api, access, about, news, known, pending };
        follower.pending.push_back(Event::default().retry(COME_BACK));
        follower.show_state().await?;
        Ok(follower)
    }

    pub(crate) fn into_stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        futures::stream::unfold(self, |mut follower| async {
            let event = follower.next().await?;
            Some((Ok(event), follower))
        })
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.pending.pop_front() {
                return Some(event);
            }
            let heard = tokio::select! {
                () = self.api.closing.cancelled() => return None,
                heard = tokio::time::timeout(HEARTBEAT, self.news.next()) => heard,
            };
            let told = match heard {
                Err(_) => self.beat().await,
                Ok(Some(Heard::Event(event))) => self.tell(event).await,
                Ok(Some(Heard::Missed(_))) => self.show_state().await,
                Ok(None) => return None,
            };
            match told {
                Ok(()) => {}
                // Retention has removed the task: there is nothing left to tell.
                Err(StoreError::NotFound) if self.about != About::Owner => return None,
                Err(error) => tracing::debug!(%error, "a live stream could not look and goes on"),
            }
        }
    }

    async fn beat(&mut self) -> Result<(), StoreError> {
        self.pending.push_back(Event::default().comment("still here"));
        let About::Task(id) = self.about else { return Ok(()) };
        let before = self.known.get(&id).map(|known| known.version);
        let task = self.look(id).await?;
        if before != Some(task.version) {
            self.push("state", None, &with_progress(&self.api, TaskSummary::of(&task)));
        }
        Ok(())
    }

    async fn show_state(&mut self) -> Result<(), StoreError> {
        match self.about {
            About::Task(id) => {
                let task = self.look(id).await?;
                self.push("state", None, &with_progress(&self.api, TaskSummary::of(&task)));
            }
            About::Owner => {
                let open = TaskFilter {
                    statuses: Status::ALL.into_iter().filter(|status| !status.is_ended()).collect(),
                    ..TaskFilter::default()
                };
                let found = self.api.engine.store.list_tasks(&self.access, &open, &PageRequest::first(SHOWN)).await?;
                found.items.iter().for_each(|task| self.remember(task));
                let summary = |task| with_progress(&self.api, TaskSummary::from(task));
                let next_cursor = found.next.map(|id| cursor::of_task(SortOrder::NewestFirst, id));
                let page = Page { items: found.items.into_iter().map(summary).collect::<Vec<_>>(), next_cursor };
                self.push("state", None, &page);
            }
        }
        Ok(())
    }

    async fn tell(&mut self, event: TaskEvent) -> Result<(), StoreError> {
        let id = event.task_id;
        let fresh = self.known.get(&id).copied().filter(|known| {
            event.event == EventKind::Progress && known.attempt == event.attempt && known.at.elapsed() < FRESH
        });
        let (known, status) = match fresh {
            Some(known) => (known, event.status),
            None => match self.look(id).await {
                Ok(task) => (Known::of(&task), task.status),
                Err(StoreError::NotFound) if self.about == About::Owner => return Ok(()),
                Err(error) => return Err(error),
            },
        };
        let is_late = known.attempt > event.attempt || known.is_ended;
        if event.event == EventKind::Progress && is_late {
            return Ok(());
        }
        let version = known.version.max(event.version);
        let news = TaskNews {
            task_id: id,
            user_id: event.owner.clone(),
            task_type: event.task_type.clone(),
            event: event.event,
            status,
            attempt: known.attempt,
            version,
            progress: event.progress.clone(),
            error: event.error.clone(),
            correlation_id: event.correlation_id.clone(),
        };
        let told_as = TaskEvent { version, ..event };
        self.push(news.event.as_str(), Some(told_as.id()), &news);
        self.api.engine.metrics.processed(Listener::Live, news.event);
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

    fn push(&mut self, name: &str, id: Option<String>, data: &impl Serialize) {
        match serde_json::to_string(data) {
            Ok(text) => {
                let event = Event::default().event(name).data(text);
                self.pending.push_back(if let Some(id) = id { event.id(id) } else { event });
            }
            Err(error) => tracing::error!(%error, "news could not be written"),
        }
    }
}

impl Known {
    fn of(task: &Task) -> Self {
        let (version, attempt, is_ended) = (task.version, task.attempt, task.status.is_ended());
        Self { version, attempt, is_ended, at: Instant::now() }
    }
}
