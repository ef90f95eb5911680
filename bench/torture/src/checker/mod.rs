//! The checker: compares the client's history, the workers' journals and the database with the
//! promises.
//!
//! Every rule is a pure function from the evidence to findings. The tests plant each kind of
//! violation into healthy evidence, so that no rule can stop working unnoticed.

mod attempts;
mod client;
mod ends;
mod evidence;
mod parents;
#[cfg(test)]
mod tests;

use std::fmt;

use uuid::Uuid;

pub(crate) use evidence::{Evidence, Observation};

/// The promises. The numbers are those of the invariants in docs/torture.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Promise {
    /// I1: an acknowledged task exists.
    Present,
    /// I1: every task was requested, once.
    Asked,
    /// I2: reads never go back.
    Reads,
    /// I3: attempts are 1, 2, 3 …, each run by one process, and charged as they ended.
    Attempts,
    /// I4: a task has one accepted end.
    OneEnd,
    /// I4, I5: no write of an attempt that was taken away is accepted.
    NoZombieWrite,
    /// I4: a task ends as its handler ended.
    RightEnd,
    /// I5: nothing starts after the end.
    NothingAfterEnd,
    /// I6: parents agree with their children.
    Parents,
    /// I7: no task runs before its time, or after it was cancelled unclaimed.
    InTime,
    /// I8: no task is stuck.
    NothingStuck,
    /// A later attempt resumes from the accepted checkpoint.
    Checkpoints,
    /// I10: counts and keys agree with the tasks.
    Counts,
    /// No worker process panics, and none of the client's requests is refused.
    NoSurprise,
}

impl Promise {
    pub(crate) const ALL: [Self; 14] = [
        Self::Present,
        Self::Asked,
        Self::Reads,
        Self::Attempts,
        Self::OneEnd,
        Self::NoZombieWrite,
        Self::RightEnd,
        Self::NothingAfterEnd,
        Self::Parents,
        Self::InTime,
        Self::NothingStuck,
        Self::Checkpoints,
        Self::Counts,
        Self::NoSurprise,
    ];

    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Present => "I1 acknowledged tasks exist",
            Self::Asked => "I1 no phantoms, one task for a key",
            Self::Reads => "I2 reads never go back",
            Self::Attempts => "I3 attempts without gap, one process each",
            Self::OneEnd => "I4 one accepted end",
            Self::NoZombieWrite => "I4 no zombie's write accepted",
            Self::RightEnd => "I4 the end is that of the handler",
            Self::NothingAfterEnd => "I5 no start after the end",
            Self::Parents => "I6 parents agree with children",
            Self::InTime => "I7 not before due, not after a cancel",
            Self::NothingStuck => "I8 nothing stuck",
            Self::Checkpoints => "   checkpoints are kept",
            Self::Counts => "I10 counts and keys agree",
            Self::NoSurprise => "   no panic, no refused request",
        }
    }
}

/// A promise that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) promise: Promise,
    pub(crate) task: Option<Uuid>,
    pub(crate) text: String,
}

impl Finding {
    fn of(promise: Promise, task: Uuid, text: impl Into<String>) -> Self {
        Self {
            promise,
            task: Some(task),
            text: text.into(),
        }
    }

    fn other(promise: Promise, text: impl Into<String>) -> Self {
        Self {
            promise,
            task: None,
            text: text.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let task = self.task.map(|id| format!(" {id}")).unwrap_or_default();
        write!(f, "[{}]{task}: {}", self.promise.text().trim(), self.text)
    }
}

/// All broken promises.
pub(crate) fn findings(evidence: &Evidence) -> Vec<Finding> {
    [
        client::present_and_requested(evidence),
        client::reads_go_forward(evidence),
        client::nothing_refused(evidence),
        attempts::numbered_and_owned(evidence),
        attempts::charged(evidence),
        attempts::in_time(evidence),
        attempts::resumed_from_checkpoints(evidence),
        ends::nothing_stuck(evidence),
        ends::one_accepted_end(evidence),
        ends::ended_as_planned(evidence),
        ends::counts_agree(evidence),
        parents::agree_with_children(evidence),
    ]
    .concat()
}
