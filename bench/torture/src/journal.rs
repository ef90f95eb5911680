//! A worker's journal: one line for each step of its handlers, written before the step has any
//! other effect.
//!
//! Each line is one `write` to a file in append mode, so it survives a kill of the process. The
//! journal is independent of the database; the checker compares the two.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use longhaul_domain::Clock as _;
use longhaul_store::SystemClock;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::tasks::SignedResult;

/// One step of one attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Line {
    /// Microseconds since 1970, by the worker's clock.
    pub(crate) at: i64,
    pub(crate) task: Uuid,
    pub(crate) attempt: u32,
    #[serde(flatten)]
    pub(crate) step: Step,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub(crate) enum Step {
    /// The node called the handler, which found this many steps done by earlier attempts.
    Start { node: Option<Uuid>, resumed: u32 },
    /// A checkpoint is about to be saved.
    Try { done: u32 },
    /// The store has accepted the checkpoint.
    Saved { done: u32 },
    /// The handler has ended and is about to report.
    Finish {
        end: End,
        made: Option<SignedResult>,
    },
    /// The handler was stopped and reported anyway. `accepted` is the store's verdict.
    Late { accepted: bool },
}

/// How a handler ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    Completed,
    /// A parent that waits for its children.
    Waits,
    /// With the planned error.
    Failed,
    /// Because it was stopped, or because the store was unavailable.
    Stopped,
}

/// The journal of one process.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
    clock: SystemClock,
}

impl Journal {
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| format!("cannot append to {}", path.display()))?;
        Ok(Self {
            file,
            clock: SystemClock::default(),
        })
    }

    /// Appends a line. Panics on failure, because the run would be worthless.
    #[expect(
        clippy::expect_used,
        reason = "the run is worthless without the journal"
    )]
    pub(crate) fn write(&self, task: Uuid, attempt: u32, step: Step) {
        let line = Line {
            at: self.clock.now().as_micros(),
            task,
            attempt,
            step,
        };

        let mut text = serde_json::to_string(&line).expect("a line is JSON");
        text.push('\n');
        (&self.file)
            .write_all(text.as_bytes())
            .expect("the journal is writable");
    }
}

/// Reads the journal of one process. A kill may have cut off the last line, which is left out.
pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<Line>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse = |line: &str| {
        serde_json::from_str(line).with_context(|| format!("{}: {line}", path.display()))
    };

    whole.lines().map(parse).collect()
}
