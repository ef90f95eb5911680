//! The registrar: what remote workers report of their progress over the broker (R37).
//!
//! Of each task the newest report counts. It goes into the progress cache and is told at once, and comes into the store
//! as seldom as the progress of any other task ([`PendingProgress`]). One node at a time does this, so that the reports of
//! a task meet in one place. A report is answered when it is kept: in the cache, and in the store if it was due there.
//! While the store is away the broker keeps what comes.

mod roll;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use longhaul_domain::{
    Status, StoreError, Task,
    contract::{
        broker::{ProgressInbox, ProgressReport},
        progress_cache::HotProgress,
        store::Access,
    },
    event::{EventKind, TaskEvent},
};
use tokio::{
    sync::Mutex,
    time::{Instant, sleep_until, timeout_at},
};

use self::roll::{Roll, Told};
use crate::{
    Engine,
    pending_progress::PendingProgress,
    service::{Duty, Pass},
};

/// Reports that are taken at once: what comes between two writes when fifty thousand come in a second.
const BATCH: usize = 5_000;
/// How long one pass listens. Between two, the lease of the duty is renewed.
const LISTENS_FOR: Duration = Duration::from_millis(500);
/// How long reports share a write to the store, and how late one that is due may be.
const BETWEEN_WRITES: Duration = Duration::from_millis(100);
/// How often a node looks whether the duty is free.
const EVERY: Duration = Duration::from_secs(1);
/// A registrar that goes on at once.
const AT_ONCE: Duration = Duration::from_millis(1);
/// Leases that are looked up in the store at the same time.
const LOOKS: usize = 16;

/// See the module. It does nothing where there is no broker.
#[derive(Debug, Default)]
pub struct Registrar {
    desk: Mutex<RegistrarDesk>,
    /// Whether the last round listened: only whoever has the duty does.
    has_listened: AtomicBool,
}

/// What the registrar has in hand.
#[derive(Debug, Default)]
struct RegistrarDesk {
    inbox: Option<Box<dyn ProgressInbox>>,
    /// Taken and not answered yet.
    held: Vec<(u64, ProgressReport)>,
    roll: Roll,
    pending: PendingProgress,
    write_at: Option<Instant>,
}

#[async_trait]
impl Duty for Registrar {
    fn name(&self) -> &'static str {
        "registrar"
    }

    fn every(&self) -> Duration {
        EVERY
    }

    /// Whoever did not listen is not the registrar, and must not keep reports from the one who is.
    fn rest(&self) -> Duration {
        if self.has_listened.swap(false, Ordering::Relaxed) {
            return AT_ONCE;
        }
        if let Ok(mut desk) = self.desk.try_lock() {
            *desk = RegistrarDesk::default();
        }
        EVERY
    }

    async fn pass(&self, engine: &Engine) -> Result<Pass, StoreError> {
        let Some(broker) = &engine.broker else {
            return Ok(Pass::Clear);
        };
        let mut desk = self.desk.lock().await;
        let until = Instant::now() + LISTENS_FOR;
        while Instant::now() < until {
            let mut inbox = desk.inbox.take().unwrap_or_else(|| broker.progress_inbox());
            if desk.held.is_empty() {
                let look_up_at = desk.write_at.map_or(until, |at| at.min(until));
                // Nothing is lost with the time: what has come meanwhile is handed out by the next call.
                desk.held = timeout_at(look_up_at, inbox.next(BATCH))
                    .await
                    .unwrap_or_default();
            }
            let kept = desk.keep(engine).await;
            if kept.is_ok() && !desk.held.is_empty() {
                let tags: Vec<u64> = desk.held.drain(..).map(|(tag, _)| tag).collect();
                inbox.answered(&tags).await;
            }
            desk.inbox = Some(inbox);
            kept?;
        }
        self.has_listened.store(true, Ordering::Relaxed);
        Ok(Pass::More)
    }
}

impl RegistrarDesk {
    /// Brings what is held to where it belongs. It may be done again after an error.
    async fn keep(&mut self, engine: &Engine) -> Result<(), StoreError> {
        let unknown = self
            .roll
            .unknown_of(self.held.iter().map(|(_, report)| &report.lease));
        for leases in unknown.chunks(LOOKS) {
            let looks = leases
                .iter()
                .map(|lease| engine.store.get_task(&Access::All, lease.task_id));
            for (lease, found) in leases.iter().zip(futures::future::join_all(looks).await) {
                match found {
                    Ok(task) => self.roll.enter(*lease, &task, now()),
                    Err(StoreError::NotFound) => self.roll.strike(*lease),
                    Err(error) => return Err(error),
                }
            }
        }
        let newest = self
            .roll
            .newest_of(self.held.iter().map(|(_, report)| report), now());
        let mut is_due = false;
        for told in &newest {
            is_due |= self.pending.note(
                told.report.lease,
                told.report.progress.clone(),
                told.report.is_full,
            );
        }
        tell(engine, newest).await;
        let write_at = *self.write_at.get_or_insert_with(Instant::now);
        if is_due {
            sleep_until(write_at).await;
        }
        if Instant::now() >= write_at {
            self.write(engine).await?;
            self.write_at = Some(Instant::now() + BETWEEN_WRITES);
        }
        Ok(())
    }

    /// Writes what is due, and strikes off whose lease the store does not know any more.
    async fn write(&mut self, engine: &Engine) -> Result<(), StoreError> {
        loop {
            let due = self.pending.due(now());
            if due.is_empty() {
                break;
            }
            let written = engine.store.save_progress(&due).await;
            due.iter()
                .for_each(|(lease, _)| self.pending.answered(lease, written.is_ok()));
            for ((lease, _), verdict) in due.iter().zip(written?) {
                if verdict.is_accepted() {
                    self.roll.written(lease);
                } else {
                    self.pending.close(lease);
                    self.roll.strike(*lease);
                }
            }
        }
        self.roll.forget_silent(now());
        let roll = &self.roll;
        self.pending
            .forget_written(now(), |lease| roll.knows(lease));
        Ok(())
    }
}

/// The runtime's time, which tests can move.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}

/// Into the cache, and to whoever listens.
async fn tell(engine: &Engine, newest: Vec<Told>) {
    let mut hot = Vec::with_capacity(newest.len());
    for told in newest {
        let Ok(progress) = told.report.progress.read::<serde_json::Value>() else {
            continue;
        };
        let (lease, sequence) = (told.report.lease, told.report.sequence);
        hot.push((
            lease.task_id,
            HotProgress {
                attempt: lease.attempt,
                sequence,
                progress: progress.clone(),
            },
        ));
        if engine.note_news(EventKind::Progress, lease.task_id, &told.known.owner) {
            engine.bus.publish(news(&told, progress));
        }
    }
    if let Some(cache) = &engine.progress_cache
        && let Err(error) = cache.put(&hot).await
    {
        tracing::debug!(%error, "reported progress is not in the cache; the store has it in some seconds");
    }
}

fn news(told: &Told, progress: serde_json::Value) -> TaskEvent {
    TaskEvent {
        task_id: told.report.lease.task_id,
        owner: told.known.owner.clone(),
        task_type: told.known.task_type.clone(),
        event: EventKind::Progress,
        status: Status::Running,
        attempt: told.report.lease.attempt,
        version: told.known.version,
        sequence: told.report.sequence,
        progress: Some(progress),
        error: None,
        correlation_id: told.known.correlation_id.clone(),
    }
}

/// Whether the task runs under this lease.
fn is_running_under(task: &Task, lease: &longhaul_domain::Lease) -> bool {
    task.lease().as_ref() == Some(lease)
}

#[cfg(test)]
mod tests;
