//! The scribe: log lines of handlers on their way into the store, many together.

use std::sync::{Mutex, PoisonError};

use longhaul_domain::{LogLine, bounds, contract::Store};

use crate::patience;

/// Lines that wait to be written; more are dropped, and the first line after that says so.
const WAITING: usize = 10_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Scribe {
    lines: Mutex<Vec<LogLine>>,
    /// One writes at a time, so that whoever waits for its lines waits for those under way too.
    writing: tokio::sync::Mutex<()>,
}

impl Scribe {
    fn lines(&self) -> std::sync::MutexGuard<'_, Vec<LogLine>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, line: LogLine) {
        let mut lines = self.lines();
        match lines.len() < WAITING {
            true => lines.push(line),
            false => tracing::warn!(
                "log lines of tasks come faster than they can be stored; one was dropped"
            ),
        }
    }

    /// Writes everything that was noted before. Lines are not the truth: what the store refuses is dropped.
    pub(crate) async fn write(&self, store: &dyn Store) {
        let _writing = self.writing.lock().await;
        let lines = std::mem::take(&mut *self.lines());
        for chunk in lines.chunks(bounds::LOG_BATCH) {
            if let Err(error) = patience::within(patience::WRITE, store.append_logs(chunk)).await {
                tracing::warn!(%error, lines = chunk.len(), "log lines of tasks could not be stored");
            }
        }
    }
}
