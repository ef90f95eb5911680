//! A worker's own file: what its handlers did, one line for each step, written before anybody else is told.
//!
//! Each line is one `write` to a file that is open for appending, so what was written stays when the process is
//! killed. The file knows nothing of the database; the checker compares the two.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use longhaul_domain::Clock as _;
use longhaul_store::SystemClock;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::tasks::Made;

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
    /// The handler was called, by the node of this id, and found this much done by earlier attempts.
    Start { node: Option<Uuid>, resumed: u32 },
    /// A checkpoint is about to be saved.
    Try { done: u32 },
    /// The store has accepted it.
    Saved { done: u32 },
    /// The handler has come to its end and is about to say so.
    Finish { end: End, made: Option<Made> },
    /// The handler was told that it no longer counts and reported all the same. `accepted` is the store's verdict.
    Late { accepted: bool },
}

/// How a handler ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum End {
    Completed,
    /// A parent that waits for its children.
    Waits,
    /// With the error that the plan wants.
    Failed,
    /// Because it was told to, or because the store was away.
    Stopped,
}

/// The file of one process.
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

    /// Appends a line. A worker that cannot is of no use to the checker and stops here.
    #[expect(
        clippy::expect_used,
        reason = "a handler without its journal would make the run worthless"
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
            .expect("the journal takes lines");
    }
}

/// Reads the file of one process. What follows the last line's end is the rest of a write that a kill cut off.
pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<Line>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse = |line: &str| {
        serde_json::from_str(line).with_context(|| format!("{}: {line}", path.display()))
    };
    whole.lines().map(parse).collect()
}
