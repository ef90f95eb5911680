//! Changes without news: of other processes, whose news stay there without a broker, and of bulk changes, of which there are
//! none. Streams look for them, often where other nodes are alive, and seldom where a broker carries news or this process is
//! the only one.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use longhaul_api::TaskNews;
use longhaul_domain::{
    Status, StoreError, Task, TaskId,
    event::{EventKind, TaskEvent},
};
use longhaul_engine::{Engine, metrics::Listener};
use tokio::time::Instant;

use super::{Follower, HEARTBEAT, Known, Told};
use crate::api::Api;

/// How soon the change of another process shows, when few streams are open.
const SOON: Duration = Duration::from_secs(2);
/// What each open stream adds to that: all streams of a process look 50 times a second at most, until looks are as seldom
/// as heartbeats. A look of an owner's stream is some statements.
const PER_STREAM: Duration = Duration::from_millis(20);
/// Tasks that have left the open ones and are asked for in one look of an owner's stream. The others wait for the next.
const LEFT: usize = 50;
/// How long it is known whether other nodes are alive.
const KNOWN_FOR: Duration = Duration::from_secs(10);

/// Whether nodes of other processes are alive, as it was last known.
#[derive(Debug, Default)]
pub(crate) struct Company(Mutex<Option<(Instant, bool)>>);

impl Company {
    /// One of those who ask at once asks the store; the others go by what was known.
    async fn is_there(&self, engine: &Engine) -> bool {
        let before = {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match *known {
                Some((at, is_there)) if at.elapsed() < KNOWN_FOR => return is_there,
                before => {
                    let is_there = before.is_some_and(|(_, is_there)| is_there);
                    *known = Some((Instant::now(), is_there));
                    is_there
                }
            }
        };
        let Ok(nodes) = engine.store.list_nodes().await else {
            return before;
        };
        let own = usize::from(engine.local_node().is_some());
        let is_there = nodes.iter().filter(|node| node.lost_at.is_none()).count() > own;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), is_there));
        is_there
    }
}

/// When a stream looks next.
pub(crate) async fn next_look(api: &Api) -> Instant {
    // Over a broker the news of all processes come here; looks are then for what is no news to anybody.
    let is_alone = api.engine.is_broker_up() || !api.company.is_there(&api.engine).await;
    let wait = if is_alone {
        HEARTBEAT
    } else {
        between_looks(api.http.open_streams())
    };
    Instant::now() + wait
}

fn between_looks(streams: u32) -> Duration {
    PER_STREAM.saturating_mul(streams).clamp(SOON, HEARTBEAT)
}

impl Follower {
    /// Tells what has happened to the caller's open tasks since they were last seen.
    pub(super) async fn look_at_open_tasks(&mut self) -> Result<(), StoreError> {
        let open = self.open_tasks().await?;
        let listed: HashSet<TaskId> = open.items.iter().map(|task| task.id).collect();
        for task in open.items {
            self.tell_change(&task);
        }
        // Older ones than the page shows are not missing from it.
        let is_missing =
            |id: &TaskId| !listed.contains(id) && open.next.is_none_or(|oldest| *id > oldest);
        let left = self
            .known
            .iter()
            .filter(|(id, known)| !known.is_ended && is_missing(id))
            .map(|(id, _)| *id);
        for id in left.take(LEFT).collect::<Vec<_>>() {
            match self.api.engine.store.get_task(&self.access, id).await {
                Ok(task) => self.tell_change(&task),
                Err(StoreError::NotFound) => drop(self.known.remove(&id)),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn tell_change(&mut self, task: &Task) {
        let before = self.known.get(&task.id).copied();
        if before.is_some_and(|known| known.version >= task.version) {
            return;
        }
        self.remember(task);
        let event = kind_of(before, task);
        // Of what runs here, the handler's own reports are told.
        if event == EventKind::Progress && self.api.engine.hot_progress(task.id).is_some() {
            return;
        }
        self.api.engine.metrics.processed(Listener::Live, event);
        self.pending.push_back(news_of(task, event));
    }
}

/// What must have happened, as far as the task's row tells.
fn kind_of(before: Option<Known>, task: &Task) -> EventKind {
    match task.status {
        Status::Queued if before.is_none() && task.attempt == 0 => EventKind::Submitted,
        Status::Queued => EventKind::Requeued,
        Status::Running if before.is_some_and(|known| known.attempt == task.attempt) => {
            EventKind::Progress
        }
        Status::Running => EventKind::Started,
        Status::Waiting => EventKind::Waiting,
        Status::Retrying => EventKind::Retrying,
        Status::Completed | Status::CompletedWithErrors => EventKind::Completed,
        Status::Failed => EventKind::Failed,
        Status::DeadLetter => EventKind::DeadLettered,
        Status::Cancelled => EventKind::Cancelled,
    }
}

fn news_of(task: &Task, event: EventKind) -> Told {
    let progress = task
        .progress
        .as_ref()
        .filter(|_| event == EventKind::Progress)
        .and_then(|json| json.read().ok());
    let told = TaskEvent {
        task_id: task.id,
        owner: task.owner.clone(),
        task_type: task.task_type.clone(),
        event,
        status: task.status,
        attempt: task.attempt,
        version: task.version,
        sequence: 0,
        progress,
        error: task.error.as_ref().map(|error| error.message.clone()),
        correlation_id: task.correlation_id.clone(),
    };
    Told::News {
        id: told.id(),
        news: Box::new(TaskNews::from(told)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_soon_for_few_streams_and_seldom_for_many() {
        assert_eq!(between_looks(1), SOON);
        assert_eq!(between_looks(250), Duration::from_secs(5));
        assert_eq!(between_looks(u32::MAX), HEARTBEAT);
    }
}
