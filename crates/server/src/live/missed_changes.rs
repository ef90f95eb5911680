//! Changes that reach this process without an event: those of other processes when there is no
//! broker, and bulk changes, which publish none. Streams poll the store for them: often when other
//! nodes are alive, rarely when a broker carries events or this process is alone.

use std::collections::HashSet;
use std::time::Duration;

use longhaul_domain::{
    Status, StoreError, TaskId, TaskRecord,
    event::{EventKind, TaskEvent},
};
use longhaul_engine::Engine;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Follower, HEARTBEAT, SeenTask};
use crate::api::Api;

/// The shortest interval between two polls of a stream.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(2);
/// What each open stream adds to the interval. All streams of a process together poll at most 50
/// times a second, until the interval reaches the heartbeat's. One poll of an owner's stream is a
/// few statements.
const PER_STREAM: Duration = Duration::from_millis(20);
/// Tasks that left the list of open tasks and are read in one poll. The rest wait for the next
/// poll.
const CLOSED_PER_POLL: usize = 50;
/// How long the answer of [`PeerPresence`] is cached.
const PRESENCE_TTL: Duration = Duration::from_secs(10);

/// Whether nodes of other processes are alive, cached for [`PRESENCE_TTL`].
#[derive(Debug, Default)]
pub(crate) struct PeerPresence(Mutex<Option<(Instant, bool)>>);

impl PeerPresence {
    async fn has_peers(&self, engine: &Engine) -> bool {
        let before = {
            // One of several concurrent callers renews the entry and asks the store. The others
            // use the old answer. The lock is not held while the store is asked.
            let mut cached = self.0.lock();
            match *cached {
                Some((at, has_peers)) if at.elapsed() < PRESENCE_TTL => return has_peers,
                Some((_, has_peers)) => {
                    *cached = Some((Instant::now(), has_peers));
                    has_peers
                }
                None => {
                    *cached = Some((Instant::now(), false));
                    false
                }
            }
        };

        let Ok(nodes) = engine.leases().list_nodes().await else {
            return before;
        };
        let own = usize::from(engine.local_node().is_some());
        let has_peers = nodes.iter().filter(|node| node.lost_at.is_none()).count() > own;

        // Locked anew for the answer: the last one to arrive counts, and each is recent.
        *self.0.lock() = Some((Instant::now(), has_peers));
        has_peers
    }
}

/// When a stream polls the store next.
pub(crate) async fn next_poll(api: &Api) -> Instant {
    // A broker carries the events of all processes; polls then only find bulk changes.
    let gets_all_events = api.engine.is_broker_up() || !api.peers.has_peers(&api.engine).await;
    let interval = if gets_all_events {
        HEARTBEAT
    } else {
        poll_interval(api.http.open_streams())
    };

    Instant::now() + interval
}

fn poll_interval(streams: u32) -> Duration {
    PER_STREAM
        .saturating_mul(streams)
        .clamp(SHORTEST_INTERVAL, HEARTBEAT)
}

impl Follower {
    /// Queues what has happened to the caller's open tasks since the last read.
    pub(super) async fn poll_open_tasks(&mut self) -> Result<(), StoreError> {
        let open = self.open_tasks().await?;
        let listed: HashSet<TaskId> = open.items.iter().map(|task| task.id).collect();
        for task in &open.items {
            self.push_change(task);
        }

        for id in self.closed_tasks(&listed, open.next) {
            match self.api.engine.reads().get_task(&self.access, id).await {
                Ok(task) => self.push_change(&task),
                Err(StoreError::NotFound) => drop(self.seen.remove(&id)),
                Err(error) => return Err(error),
            }
        }

        Ok(())
    }

    /// Tasks that were open and are not in the list any more. Tasks older than the page are not
    /// expected in it.
    fn closed_tasks(&self, listed: &HashSet<TaskId>, oldest: Option<TaskId>) -> Vec<TaskId> {
        let is_closed = |id: &TaskId| !listed.contains(id) && oldest.is_none_or(|last| *id > last);
        let open = self.seen.iter().filter(|(_, seen)| !seen.is_ended);
        let ids = open.map(|(id, _)| *id);
        ids.filter(is_closed).take(CLOSED_PER_POLL).collect()
    }

    fn push_change(&mut self, task: &TaskRecord) {
        let before = self.seen.get(&task.id).copied();
        if before.is_some_and(|seen| seen.version >= task.version) {
            return;
        }

        self.remember(task);
        let kind = event_kind(before, task);

        // The progress of a task that runs in this process arrives over the bus.
        let runs_here = self.api.engine.progress_here(task.id).is_some();
        if kind == EventKind::Progress && runs_here {
            return;
        }

        self.queue_event(event_of(task, kind));
    }
}

/// What must have happened, judging by the task's row.
fn event_kind(before: Option<SeenTask>, task: &TaskRecord) -> EventKind {
    let is_new = before.is_none() && task.attempt == 0;
    if is_new && task.status == Status::Queued {
        return EventKind::Submitted;
    }

    let is_same_attempt = before.is_some_and(|seen| seen.attempt == task.attempt);
    if is_same_attempt && task.status == Status::Running {
        return EventKind::Progress;
    }

    EventKind::of_status(task.status)
}

fn event_of(task: &TaskRecord, event: EventKind) -> TaskEvent {
    let progress = match (event, &task.progress) {
        (EventKind::Progress, Some(json)) => json.read().ok(),
        _ => None,
    };

    TaskEvent {
        progress,
        ..TaskEvent::of(task, event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_poll_interval_grows_with_the_number_of_streams() {
        assert_eq!(poll_interval(1), SHORTEST_INTERVAL);
        assert_eq!(poll_interval(250), Duration::from_secs(5));
        assert_eq!(poll_interval(u32::MAX), HEARTBEAT);
    }
}
