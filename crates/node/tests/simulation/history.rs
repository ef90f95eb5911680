//! The simulation's own record of what happened, kept beside the store.
//!
//! Every call that can change something is observed as soon as it returns: the changed rows are
//! compared with what they were and with the call. Nothing here comes from the code under test.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write as _;

use longhaul_domain::{
    Lease, LeaseToken, NodeId, NodeRecord, QueueName, TaskId, TaskRecord,
    contract::store::{AttemptEnd, AttemptReport, BulkChange, RescueRequest, Verdict},
};

use crate::checks;
use crate::coverage::{Coverage, Situation};

/// An invariant that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) step: usize,
    pub(crate) invariant: &'static str,
    pub(crate) detail: String,
}

/// The call that changed the store.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Call<'a> {
    Submit,
    Claim(NodeId),
    Strays,
    Progress,
    Finish {
        reports: &'a [AttemptReport],
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
    /// Registration, heartbeat, retirement, maintenance: calls that change no task.
    Node,
}

impl Call<'_> {
    /// The outcome that this call recorded for a task, if it did.
    pub(crate) fn recorded(&self, id: TaskId) -> Option<&AttemptEnd> {
        let Call::Finish { reports, verdicts } = self else {
            return None;
        };
        let counted = |(report, verdict): &(&AttemptReport, &Verdict)| {
            report.lease.task_id == id && matches!(verdict, Verdict::Applied(_))
        };

        reports
            .iter()
            .zip(verdicts.iter())
            .find(counted)
            .map(|(report, _)| &report.end)
    }

    pub(crate) fn cancels(&self) -> bool {
        if let Call::Finish { reports, .. } = self {
            return reports
                .iter()
                .any(|report| report.end == AttemptEnd::Cancelled);
        }
        matches!(self, Call::Cancel | Call::Bulk(BulkChange::Cancel))
    }
}

/// A task as it was last observed.
#[derive(Debug)]
pub(crate) struct Record {
    /// The task's short name in the trace, in the order of appearance.
    pub(crate) number: usize,
    pub(crate) row: TaskRecord,
    /// How often the task has ended since it was submitted or reopened by a user.
    pub(crate) ends: u32,
}

#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) records: BTreeMap<TaskId, Record>,
    pub(crate) tokens: HashSet<LeaseToken>,
    /// Leases whose end the store has recorded.
    pub(crate) applied: HashSet<Lease>,
    /// Leases that reached a process, in flight now or before.
    pub(crate) taken: HashSet<Lease>,
    pub(crate) keys: BTreeMap<(String, String), TaskId>,
    /// Nodes that have been declared dead.
    pub(crate) dead: BTreeSet<NodeId>,
    pub(crate) paused: BTreeSet<QueueName>,
    pub(crate) violation: Option<Violation>,
    pub(crate) coverage: Coverage,
    pub(crate) step: usize,
    /// Only when the trace is to be printed.
    trace: Option<String>,
}

impl History {
    pub(crate) fn new(traced: bool) -> Self {
        Self {
            trace: traced.then(String::new),
            ..Self::default()
        }
    }

    pub(crate) fn saw(&mut self, situation: Situation) {
        self.coverage.saw(situation);
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

    /// Records the first violation. Later ones only follow from it.
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

    /// The store has acknowledged a submission.
    pub(crate) fn acknowledged(&mut self, id: TaskId) {
        if !self.records.contains_key(&id) {
            self.violated(
                "an acknowledged task exists",
                format!("{id} is not in the store"),
            );
        }
    }

    /// Checks the rows against what they were before the call.
    pub(crate) fn observe(
        &mut self,
        call: Call<'_>,
        tasks: &BTreeMap<TaskId, TaskRecord>,
        nodes: &BTreeMap<NodeId, NodeRecord>,
    ) {
        checks::verdicts(self, call);
        checks::nodes(self, call, nodes);

        if tasks.len() < self.records.len() {
            self.violated(
                "an acknowledged task exists",
                "a row is gone although no call prunes",
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

    /// The rows that are new or have another version. Both maps are sorted by id.
    fn changed<'a>(&self, tasks: &'a BTreeMap<TaskId, TaskRecord>) -> Vec<&'a TaskRecord> {
        let mut records = self.records.values().peekable();
        let is_changed =
            move |row: &&TaskRecord| match records.next_if(|record| record.row.id == row.id) {
                Some(record) => record.row.version != row.version,
                None => true,
            };
        tasks.values().filter(is_changed).collect()
    }

    fn remember(&mut self, row: &TaskRecord) {
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
