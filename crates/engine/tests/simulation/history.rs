//! What the simulation remembers by itself, beside the store, and holds every change of the store against.
//!
//! Each call that can change something is observed the moment it is done: the rows that changed are compared with what
//! they were, and with who called. Nothing here is asked of the code under test.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;

use longhaul_domain::{
    Lease, LeaseToken, Node, NodeId, Task, TaskId,
    contract::store::{BulkChange, Outcome, Report, RescueRequest, Verdict},
};

use crate::census::{Census, Sight};
use crate::checks;

/// A promise that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) step: usize,
    pub(crate) invariant: &'static str,
    pub(crate) detail: String,
}

/// Who changed the store, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Call<'a> {
    Submit,
    Claim(NodeId),
    Strays,
    Progress,
    Finish {
        reports: &'a [Report],
        verdicts: &'a [Verdict],
    },
    Cancel,
    Retry,
    RedoChildren,
    Reschedule,
    Bulk(&'a BulkChange),
    Rescue(&'a RescueRequest),
    Expire,
    FailWaiting,
    /// Registration, heartbeat, retirement, duties: no task changes.
    Node,
}

impl Call<'_> {
    /// The outcome that this call recorded for a task.
    pub(crate) fn recorded(&self, id: TaskId) -> Option<&Outcome> {
        let Call::Finish { reports, verdicts } = self else {
            return None;
        };
        let counted = |(report, verdict): &(&Report, &Verdict)| {
            report.lease.task_id == id && matches!(verdict, Verdict::Applied(_))
        };
        reports
            .iter()
            .zip(verdicts.iter())
            .find(counted)
            .map(|(report, _)| &report.outcome)
    }

    pub(crate) fn cancels(&self) -> bool {
        if let Call::Finish { reports, .. } = self {
            return reports
                .iter()
                .any(|report| report.outcome == Outcome::Cancelled);
        }
        matches!(self, Call::Cancel | Call::Bulk(BulkChange::Cancel))
    }
}

/// A task as it was seen last.
#[derive(Debug)]
pub(crate) struct Record {
    /// Short names for the trace, in the order of appearance.
    pub(crate) number: usize,
    pub(crate) row: Task,
    /// Ends since the task was made or opened again by a person.
    pub(crate) ends: u32,
}

#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) records: BTreeMap<TaskId, Record>,
    pub(crate) tokens: HashSet<LeaseToken>,
    /// Leases whose end was recorded.
    pub(crate) applied: HashSet<Lease>,
    /// Leases that a process has had in hand.
    pub(crate) taken: HashSet<Lease>,
    pub(crate) keys: BTreeMap<(String, String), TaskId>,
    /// Nodes that were seen dead.
    pub(crate) dead: BTreeSet<NodeId>,
    pub(crate) paused: BTreeSet<String>,
    pub(crate) violation: Option<Violation>,
    pub(crate) census: Census,
    pub(crate) step: usize,
    /// Kept only when somebody will read it.
    trace: Option<String>,
}

impl History {
    pub(crate) fn new(traced: bool) -> Self {
        Self {
            trace: traced.then(String::new),
            ..Self::default()
        }
    }

    pub(crate) fn saw(&mut self, sight: Sight) {
        self.census.saw(sight);
    }

    pub(crate) fn note(&mut self, line: std::fmt::Arguments<'_>) {
        if let Some(trace) = &mut self.trace {
            // Writing to a string cannot fail.
            let _ = writeln!(trace, "{:>4} {line}", self.step);
        }
    }

    pub(crate) fn trace(&self) -> &str {
        self.trace.as_deref().unwrap_or_default()
    }

    /// A task's short name.
    pub(crate) fn number(&self, id: TaskId) -> usize {
        self.records.get(&id).map_or(0, |record| record.number)
    }

    /// Notes the first broken promise; what follows from it is of no interest.
    pub(crate) fn violated(&mut self, invariant: &'static str, detail: impl Into<String>) {
        if self.violation.is_none() {
            let violation = Violation {
                step: self.step,
                invariant,
                detail: detail.into(),
            };
            self.note(format_args!("VIOLATION {invariant}: {}", violation.detail));
            self.violation = Some(violation);
        }
    }

    /// A submitter was told that its task exists.
    pub(crate) fn acknowledged(&mut self, id: TaskId) {
        if !self.records.contains_key(&id) {
            self.violated("an acknowledged task exists", format!("nobody finds {id}"));
        }
    }

    /// Holds the rows against what they were before the call.
    pub(crate) fn observe(
        &mut self,
        call: Call<'_>,
        tasks: &BTreeMap<TaskId, Task>,
        nodes: &BTreeMap<NodeId, Node>,
    ) {
        checks::verdicts(self, call);
        checks::nodes(self, call, nodes);
        if tasks.len() < self.records.len() {
            self.violated(
                "an acknowledged task exists",
                "a row is gone that nobody pruned",
            );
        }
        let changed = self.changed(tasks);
        for row in &changed {
            if self.records.contains_key(&row.id) {
                checks::change(self, call, row, nodes);
            } else {
                checks::new_row(self, call, row);
            }
        }
        for row in &changed {
            self.remember(row);
        }
        for row in changed {
            checks::family(self, row, tasks);
        }
    }

    /// The rows that are new, or not as they were. Both maps are in the order of the ids.
    fn changed<'a>(&self, tasks: &'a BTreeMap<TaskId, Task>) -> Vec<&'a Task> {
        let mut records = self.records.values().peekable();
        let is_news = move |row: &&Task| match records.next_if(|record| record.row.id == row.id) {
            Some(record) => record.row.version != row.version,
            None => true,
        };
        tasks.values().filter(is_news).collect()
    }

    fn remember(&mut self, row: &Task) {
        let number = self.records.len() + 1;
        let record = self.records.entry(row.id).or_insert_with(|| Record {
            number,
            row: row.clone(),
            ends: 0,
        });
        if record.row.version != row.version {
            match (record.row.status.is_ended(), row.status.is_ended()) {
                (false, true) => record.ends += 1,
                (true, false) => record.ends = 0,
                _ => {}
            }
            record.row = row.clone();
        }
        let number = record.number;
        self.note(format_args!(
            "     t{number} {} {} attempt {} version {} due {} retries {} snoozes {} crashes {}",
            row.task_type,
            row.status.as_str(),
            row.attempt,
            row.version,
            row.due_at.as_micros(),
            row.retry_count,
            row.snooze_count,
            row.crash_count
        ));
    }
}
