//! Collecting the progress that remote workers report over the broker.
//!
//! Only the newest report of each task counts. It goes into the progress cache and to live
//! listeners at once, and to the store as seldom as the progress of any other task
//! ([`WriteBehind`]). One node at a time collects, so that all reports of a task meet in one place.
//! A report is acknowledged when it is safe: in the cache, and in the store if it was due there.
//! While the store is down the broker holds what arrives.

mod known_leases;

use std::time::Duration;

use longhaul_domain::{
    Lease, StoreError,
    contract::{
        Broker,
        broker::{ProgressInbox, ProgressReport},
        progress_cache::LiveProgress,
        store::Access,
    },
    event::{EventKind, TaskEvent},
};
use tokio::time::{Instant, sleep_until, timeout_at};

use self::known_leases::{FreshReport, KnownLeases};
use super::WriteBehind;
use crate::Engine;

/// Reports that are taken at once: what arrives between two writes at fifty thousand a second.
const BATCH: usize = 5_000;
/// How long reports share a write to the store, and how late a due one may be.
const BETWEEN_WRITES: Duration = Duration::from_millis(100);
/// Leases that are looked up in the store at the same time.
const LOOKUPS: usize = 16;

/// The reports and leases of the node that collects.
#[derive(Debug, Default)]
pub struct ProgressCollection {
    inbox: Option<Box<dyn ProgressInbox>>,
    /// Taken from the inbox and not acknowledged yet.
    unacknowledged: Vec<(u64, ProgressReport)>,
    leases: KnownLeases,
    pending: WriteBehind,
    write_at: Option<Instant>,
}

impl ProgressCollection {
    /// Collects until `until`. After an error the next call continues with the same reports.
    pub async fn run_until(
        &mut self,
        until: Instant,
        engine: &Engine,
        broker: &dyn Broker,
    ) -> Result<(), StoreError> {
        while Instant::now() < until {
            let mut inbox = match self.inbox.take() {
                Some(inbox) => inbox,
                None => broker.progress_inbox(),
            };
            self.receive(&mut *inbox, until).await;

            let processed = self.process(engine).await;
            if processed.is_ok() && !self.unacknowledged.is_empty() {
                let reports = std::mem::take(&mut self.unacknowledged);
                let tags: Vec<u64> = reports.into_iter().map(|(tag, _)| tag).collect();
                inbox.answered(&tags).await;
            }

            self.inbox = Some(inbox);
            processed?;
        }

        Ok(())
    }

    /// Takes reports from the inbox until `until` or the next write, unless some are left from a
    /// pass that failed.
    async fn receive(&mut self, inbox: &mut dyn ProgressInbox, until: Instant) {
        if !self.unacknowledged.is_empty() {
            return;
        }

        // A timeout loses nothing: the next call hands out what arrived in the meantime.
        let deadline = self.write_at.map_or(until, |at| at.min(until));
        let received = timeout_at(deadline, inbox.next(BATCH)).await;
        self.unacknowledged = received.unwrap_or_default();
    }

    /// Publishes the newest reports and writes those that are due. After an error it may be
    /// repeated.
    async fn process(&mut self, engine: &Engine) -> Result<(), StoreError> {
        self.look_up_leases(engine).await?;

        let reports = self.unacknowledged.iter().map(|(_, report)| report);
        let newest = self.leases.newest_of(reports, now());
        let mut is_due = false;
        for FreshReport { report, .. } in &newest {
            let progress = report.progress.clone();
            is_due |= self.pending.note(report.lease, progress, report.is_full);
        }
        publish(engine, newest).await;

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

    /// Asks the store about leases that were not seen before.
    async fn look_up_leases(&mut self, engine: &Engine) -> Result<(), StoreError> {
        let reported = self.unacknowledged.iter().map(|(_, report)| &report.lease);
        let unknown: Vec<Lease> = self.leases.unknown_of(reported);

        for leases in unknown.chunks(LOOKUPS) {
            let lookups = leases
                .iter()
                .map(|lease| engine.store.get_task(&Access::All, lease.task_id));
            let found = futures::future::join_all(lookups).await;

            for (lease, found) in leases.iter().zip(found) {
                match found {
                    Ok(task) => self.leases.add(*lease, &task, now()),
                    Err(StoreError::NotFound) => self.leases.reject(*lease),
                    Err(error) => return Err(error),
                }
            }
        }

        Ok(())
    }

    /// Writes what is due, and rejects leases that the store refuses.
    async fn write(&mut self, engine: &Engine) -> Result<(), StoreError> {
        loop {
            let due = self.pending.due(now());
            if due.is_empty() {
                break;
            }

            let written = engine.store.save_progress(&due).await;
            for (lease, _) in &due {
                self.pending.answered(lease, written.is_ok());
            }

            for ((lease, _), verdict) in due.iter().zip(written?) {
                if verdict.is_accepted() {
                    self.leases.written(lease);
                } else {
                    self.pending.close(lease);
                    self.leases.reject(*lease);
                }
            }
        }

        self.leases.forget_silent(now());
        let leases = &self.leases;
        self.pending
            .forget_written(now(), |lease| leases.contains(lease));
        Ok(())
    }
}

/// The runtime's time, which tests can move.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}

/// Puts reports into the progress cache and sends them to live listeners.
async fn publish(engine: &Engine, newest: Vec<FreshReport>) {
    let mut live = Vec::with_capacity(newest.len());
    for FreshReport { report, event } in newest {
        let Ok(progress) = report.progress.read::<serde_json::Value>() else {
            continue;
        };

        let entry = LiveProgress {
            attempt: report.lease.attempt,
            sequence: report.sequence,
            progress: progress.clone(),
        };
        live.push((report.lease.task_id, entry));

        if engine.count_event(EventKind::Progress, event.task_id, &event.owner) {
            engine.bus.publish(TaskEvent {
                sequence: report.sequence,
                progress: Some(progress),
                ..event
            });
        }
    }

    if let Some(cache) = &engine.progress_cache
        && let Err(error) = cache.put(&live).await
    {
        tracing::debug!(
            %error,
            "writing collected progress to the cache failed; the store gets it within seconds"
        );
    }
}

#[cfg(test)]
mod tests;
