//! The leases under which remote workers report: which the store has vouched for, and which it has not.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use longhaul_domain::{Lease, Task, TaskId, contract::broker::ProgressReport};

use super::is_running_under;

/// Tasks that report at the same time. Of more, those that have been silent for the longest time are looked up again when
/// they report: some ten megabytes at most.
const KNOWN: usize = 20_000;
/// Leases that are known to be none, so that whoever reports under one costs one look and not one each time.
const STRUCK: usize = 20_000;
/// A task that has reported nothing for so long is forgotten.
const SILENT: Duration = Duration::from_secs(60);

/// A task whose lease the store has vouched for.
#[derive(Debug, Clone)]
pub(super) struct Known {
    lease: Lease,
    pub(super) owner: String,
    pub(super) task_type: String,
    pub(super) correlation_id: Option<String>,
    /// As far as is known: others may have raised it.
    pub(super) version: u64,
    /// The number of the newest report.
    sequence: u64,
    heard_at: Instant,
}

/// A report that is newer than all before it.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) report: ProgressReport,
    pub(super) known: Known,
}

#[derive(Debug, Default)]
pub(super) struct Roll {
    known: HashMap<TaskId, Known>,
    struck: HashSet<Lease>,
    struck_in_order: VecDeque<Lease>,
}

impl Roll {
    /// The leases that the store must be asked about, each once.
    pub(super) fn unknown_of<'a>(&self, leases: impl Iterator<Item = &'a Lease>) -> Vec<Lease> {
        let mut seen = HashSet::new();
        let is_open = |lease: &&Lease| {
            let known = self.known.get(&lease.task_id);
            // A later attempt is known: an earlier one can only be over.
            let is_settled = known
                .is_some_and(|known| known.lease == **lease || known.lease.attempt > lease.attempt);
            !is_settled && !self.struck.contains(*lease)
        };
        leases
            .filter(is_open)
            .filter(|lease| seen.insert(**lease))
            .copied()
            .collect()
    }

    /// The store was asked about the lease, and has this.
    pub(super) fn enter(&mut self, lease: Lease, task: &Task, now: Instant) {
        if !is_running_under(task, &lease) {
            return self.strike(lease);
        }
        if self.known.len() >= KNOWN {
            self.forget_half();
        }
        let known = Known {
            lease,
            owner: task.owner.clone(),
            task_type: task.task_type.clone(),
            correlation_id: task.correlation_id.clone(),
            version: task.version,
            sequence: 0,
            heard_at: now,
        };
        self.known.insert(lease.task_id, known);
    }

    /// This lease is none, or no longer. It will never be one again.
    pub(super) fn strike(&mut self, lease: Lease) {
        if self.knows(&lease) {
            self.known.remove(&lease.task_id);
        }
        if self.struck.insert(lease) {
            self.struck_in_order.push_back(lease);
        }
        if self.struck_in_order.len() > STRUCK
            && let Some(oldest) = self.struck_in_order.pop_front()
        {
            self.struck.remove(&oldest);
        }
    }

    /// Of each task the newest report that is newer than what was told before.
    pub(super) fn newest_of<'a>(
        &mut self,
        reports: impl Iterator<Item = &'a ProgressReport>,
        now: Instant,
    ) -> Vec<Told> {
        let mut newest: HashMap<TaskId, &ProgressReport> = HashMap::new();
        for report in reports {
            let Some(known) = self.known.get_mut(&report.lease.task_id) else {
                continue;
            };
            if known.lease == report.lease && report.sequence > known.sequence {
                (known.sequence, known.heard_at) = (report.sequence, now);
                newest.insert(report.lease.task_id, report);
            }
        }
        let told = |(id, report): (TaskId, &ProgressReport)| {
            Some(Told {
                report: report.clone(),
                known: self.known.get(&id)?.clone(),
            })
        };
        newest.into_iter().filter_map(told).collect()
    }

    /// A write has raised the version of the task's row.
    pub(super) fn written(&mut self, lease: &Lease) {
        if let Some(known) = self
            .known
            .get_mut(&lease.task_id)
            .filter(|known| known.lease == *lease)
        {
            known.version += 1;
        }
    }

    pub(super) fn knows(&self, lease: &Lease) -> bool {
        self.known
            .get(&lease.task_id)
            .is_some_and(|known| known.lease == *lease)
    }

    pub(super) fn forget_silent(&mut self, now: Instant) {
        self.known
            .retain(|_, known| now.duration_since(known.heard_at) < SILENT);
    }

    /// Those that have been silent for longer than the others.
    fn forget_half(&mut self) {
        let mut heard: Vec<Instant> = self.known.values().map(|known| known.heard_at).collect();
        let middle = heard.len() / 2;
        let (_, median, _) = heard.select_nth_unstable(middle);
        let median = *median;
        self.known.retain(|_, known| known.heard_at > median);
    }
}
