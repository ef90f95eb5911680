//! Whether the store can be read and written, and for how long it has answered heartbeats without a
//! break.
//!
//! A store with a full disk, a locked file or a server that became read-only answers reads as
//! always. So a row must be written to know. Heartbeats do that; where there was none lately, a
//! probe writes a row of its own. Only one probe runs at a time.

use std::time::Duration;

use longhaul_domain::{NodeId, StoreError};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use crate::Engine;

/// A store that needs longer for a trivial read or write counts as down.
pub(crate) const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// A row that was written less long ago shows that the store can be written.
const WRITE_FRESH: Duration = Duration::from_secs(2);
/// How long a failed probe answers for those that follow. The endpoint that asks is public.
const FAILURE_FRESH: Duration = Duration::from_secs(1);
/// The row of a probe: a maintenance lease that no job takes and no node holds.
const PROBE: &str = "write-probe";
const PROBE_LEASE_MS: u64 = 1;

#[derive(Debug, Default)]
pub(crate) struct StoreHealth {
    /// The latest unbroken run of answers; nothing before the first one.
    answering: Mutex<Option<Answering>>,
    /// When a row was last committed that shows that the store can be written. Both locks are held
    /// for one copy or assignment.
    written_at: Mutex<Option<Instant>>,
    /// The last probe's failure and its time. Held by the probe that runs.
    probe: tokio::sync::Mutex<Option<(Instant, StoreError)>>,
}

impl StoreHealth {
    fn note_write(&self) {
        // Held for one assignment, never across an await.
        *self.written_at.lock() = Some(Instant::now());
    }

    fn is_written(&self) -> bool {
        let written_at = *self.written_at.lock();
        written_at.is_some_and(|at| at.elapsed() <= WRITE_FRESH)
    }
}

/// What a process cannot do with its store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreFault {
    #[error("the store cannot be read: {0}")]
    Read(StoreError),
    #[error("the store cannot be written: {0}")]
    Write(StoreError),
}

#[derive(Debug, Clone, Copy)]
struct Answering {
    since: Instant,
    last: Instant,
    /// A longer silence than this is a break.
    max_silence: Duration,
}

impl Answering {
    fn after(before: Option<Self>, now: Instant, max_silence: Duration) -> Self {
        let since = match before {
            Some(before) if now.duration_since(before.last) <= before.max_silence => before.since,
            Some(_) | None => now,
        };

        Self {
            since,
            last: now,
            max_silence,
        }
    }

    /// How long the store has answered. Zero once the silence is too long, even before the next
    /// answer ends it.
    fn lasts_for(self, now: Instant) -> Duration {
        if now.duration_since(self.last) <= self.max_silence {
            now.duration_since(self.since)
        } else {
            Duration::ZERO
        }
    }
}

impl Engine {
    /// Notes that the store has answered a heartbeat. It counts as down when the next answer takes
    /// longer than `max_silence`.
    pub fn note_store_answer(&self, max_silence: Duration) {
        self.store_health.note_write();
        // Read and written under one lock, because two answers may arrive at once.
        let mut answering = self.store_health.answering.lock();
        *answering = Some(Answering::after(*answering, Instant::now(), max_silence));
    }

    /// For how long the store has answered without a break; `None` in a process without
    /// heartbeats.
    pub fn store_answers_for(&self) -> Option<Duration> {
        let answering = *self.store_health.answering.lock();
        answering.map(|answering| answering.lasts_for(Instant::now()))
    }

    /// Whether this process can read and write its store now.
    pub async fn check_store(&self) -> Result<(), StoreFault> {
        let (read, written) = tokio::join!(self.check_read(), self.check_write());
        read.map_err(StoreFault::Read)?;
        written.map_err(StoreFault::Write)
    }

    async fn check_read(&self) -> Result<(), StoreError> {
        let answer = timeout(STORE_TIMEOUT, self.store.now()).await;
        answer.map_err(|_| no_answer())?.map(drop)
    }

    /// Whether the store can be written. Writes a row if none was written lately.
    pub(crate) async fn check_write(&self) -> Result<(), StoreError> {
        if self.store_health.is_written() {
            return Ok(());
        }

        let answer = timeout(STORE_TIMEOUT, self.probe_write()).await;
        answer.map_err(|_| no_answer())?
    }

    async fn probe_write(&self) -> Result<(), StoreError> {
        // Held across the write, so that many callers cause one probe.
        let mut failure = self.store_health.probe.lock().await;
        if self.store_health.is_written() {
            return Ok(());
        }
        if let Some((at, error)) = &*failure
            && at.elapsed() <= FAILURE_FRESH
        {
            return Err(error.clone());
        }

        // Noted before the write: a probe that is given up counts as failed for those that wait.
        *failure = Some((Instant::now(), no_answer()));
        let probed = self
            .store
            .take_maintenance_lease(PROBE, NodeId::NONE, PROBE_LEASE_MS)
            .await;

        match probed {
            Ok(_) => {
                *failure = None;
                self.store_health.note_write();
                Ok(())
            }
            Err(error) => {
                *failure = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }
}

fn no_answer() -> StoreError {
    StoreError::Unavailable(format!("no answer within {STORE_TIMEOUT:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_that_is_too_long_starts_the_time_anew() {
        let start = Instant::now();
        let max_silence = Duration::from_secs(15);
        let at = |seconds| start + Duration::from_secs(seconds);

        let first = Answering::after(None, at(0), max_silence);
        let second = Answering::after(Some(first), at(15), max_silence);
        assert_eq!(second.since, start);
        assert_eq!(
            Answering::after(Some(second), at(31), max_silence).since,
            at(31)
        );
    }

    #[test]
    fn a_silence_that_is_too_long_counts_before_an_answer_ends_it() {
        let start = Instant::now();
        let max_silence = Duration::from_secs(15);
        let answering = Answering {
            since: start,
            last: start + max_silence,
            max_silence,
        };

        assert_eq!(
            answering.lasts_for(start + max_silence * 2),
            max_silence * 2
        );
        let too_late = start + max_silence * 2 + Duration::from_millis(1);
        assert_eq!(answering.lasts_for(too_late), Duration::ZERO);
    }
}
