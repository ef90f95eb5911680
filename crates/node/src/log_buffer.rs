//! The log buffer: log lines of handlers on their way to the store, many in one write.

use longhaul_domain::{LogLine, bounds};
use longhaul_engine::Engine;
use parking_lot::Mutex;

use crate::deadlines::{WRITE_TIMEOUT, within};

/// Lines that wait to be written. Further lines are dropped.
const CAPACITY: usize = 10_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct LogBuffer {
    pending: Mutex<Vec<LogLine>>,
    /// One write at a time, so that a caller of [`Self::write`] also waits for lines that another
    /// write has taken.
    writing: tokio::sync::Mutex<()>,
}

impl LogBuffer {
    pub(crate) fn add(&self, line: LogLine) {
        // Checked and added under one lock, so that handlers together stay within the capacity.
        let mut lines = self.pending.lock();
        if lines.len() < CAPACITY {
            lines.push(line);
        } else {
            tracing::warn!(
                "log lines of tasks arrive faster than they can be stored; one was dropped"
            );
        }
    }

    /// Writes all lines that were added before. Lines that the store refuses are dropped.
    pub(crate) async fn write(&self, engine: &Engine) {
        // In this order: a caller that waits for the other write takes what was added since.
        let _writing = self.writing.lock().await;
        let lines = std::mem::take(&mut *self.pending.lock());

        for chunk in lines.chunks(bounds::LOG_BATCH) {
            if let Err(error) = within(WRITE_TIMEOUT, engine.append_logs(chunk)).await {
                tracing::warn!(
                    %error,
                    lines = chunk.len(),
                    "log lines of tasks could not be stored; they are dropped"
                );
            }
        }
    }
}
