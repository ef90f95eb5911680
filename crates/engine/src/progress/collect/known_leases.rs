//! The leases under which remote workers report: those that the store has confirmed, and those that
//! it has refused.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use longhaul_domain::{
    Lease, TaskId, TaskRecord, contract::broker::ProgressReport, event::TaskEvent,
};

/// Tasks that report at the same time: some ten megabytes at most. Beyond it, those that have been
/// silent for longest are looked up again when they report.
const MAX_CONFIRMED: usize = 20_000;
/// Refused leases that are remembered, so that a worker that reports under one costs one lookup and
/// not one per report.
const MAX_REJECTED: usize = 20_000;
/// A task that has reported nothing for this long is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// A lease that the store has confirmed.
#[derive(Debug, Clone)]
struct Confirmed {
    lease: Lease,
    /// The event of the next report, without the report. Its sequence is that of the newest report.
    /// Its version is a lower bound, because writes of other nodes raise it too.
    event: TaskEvent,
    reported_at: Instant,
}

/// A report that is newer than all before it, and the event that carries it.
#[derive(Debug)]
pub(super) struct FreshReport {
    pub(super) report: ProgressReport,
    pub(super) event: TaskEvent,
}

#[derive(Debug, Default)]
pub(super) struct KnownLeases {
    confirmed: HashMap<TaskId, Confirmed>,
    rejected: HashSet<Lease>,
    rejected_oldest_first: VecDeque<Lease>,
}

impl KnownLeases {
    /// The leases that the store must be asked about, each once.
    pub(super) fn unknown_of<'a>(&self, leases: impl Iterator<Item = &'a Lease>) -> Vec<Lease> {
        let mut seen = HashSet::new();
        let mut unknown = Vec::new();
        for lease in leases {
            if !self.is_settled(lease) && seen.insert(*lease) {
                unknown.push(*lease);
            }
        }

        unknown
    }

    /// Whether the store need not be asked about this lease. Once a later attempt is confirmed, an
    /// earlier one can only be over.
    fn is_settled(&self, lease: &Lease) -> bool {
        let is_confirmed_or_over = self
            .confirmed
            .get(&lease.task_id)
            .is_some_and(|known| known.lease == *lease || known.lease.attempt > lease.attempt);
        is_confirmed_or_over || self.rejected.contains(lease)
    }

    /// Adds a lease with the task that the store has for it. It is rejected unless the task runs
    /// under it.
    pub(super) fn add(&mut self, lease: Lease, task: &TaskRecord, now: Instant) {
        if task.lease() != Some(lease) {
            return self.reject(lease);
        }
        if self.confirmed.len() >= MAX_CONFIRMED {
            self.forget_half();
        }

        let confirmed = Confirmed {
            lease,
            event: TaskEvent::progress(task, 0, serde_json::Value::Null),
            reported_at: now,
        };
        self.confirmed.insert(lease.task_id, confirmed);
    }

    /// Rejects a lease that is not valid, or no longer. It never becomes valid again.
    pub(super) fn reject(&mut self, lease: Lease) {
        if self.contains(&lease) {
            self.confirmed.remove(&lease.task_id);
        }
        if self.rejected.insert(lease) {
            self.rejected_oldest_first.push_back(lease);
        }

        if self.rejected_oldest_first.len() > MAX_REJECTED
            && let Some(oldest) = self.rejected_oldest_first.pop_front()
        {
            self.rejected.remove(&oldest);
        }
    }

    /// Of each confirmed task the newest report that is newer than all before it.
    pub(super) fn newest_of<'a>(
        &mut self,
        reports: impl Iterator<Item = &'a ProgressReport>,
        now: Instant,
    ) -> Vec<FreshReport> {
        let mut newest: HashMap<TaskId, &ProgressReport> = HashMap::new();
        for report in reports {
            let Some(known) = self.confirmed.get_mut(&report.lease.task_id) else {
                continue;
            };
            if known.lease == report.lease && report.sequence > known.event.sequence {
                known.event.sequence = report.sequence;
                known.reported_at = now;
                newest.insert(report.lease.task_id, report);
            }
        }

        let mut fresh = Vec::with_capacity(newest.len());
        for (id, report) in newest {
            if let Some(known) = self.confirmed.get(&id) {
                fresh.push(FreshReport {
                    report: report.clone(),
                    event: known.event.clone(),
                });
            }
        }

        fresh
    }

    /// A write has raised the version of the task's row.
    pub(super) fn written(&mut self, lease: &Lease) {
        if let Some(known) = self.confirmed.get_mut(&lease.task_id)
            && known.lease == *lease
        {
            known.event.version += 1;
        }
    }

    /// Whether the lease is confirmed.
    pub(super) fn contains(&self, lease: &Lease) -> bool {
        self.confirmed
            .get(&lease.task_id)
            .is_some_and(|known| known.lease == *lease)
    }

    pub(super) fn forget_silent(&mut self, now: Instant) {
        self.confirmed
            .retain(|_, known| now.duration_since(known.reported_at) < FORGET_AFTER);
    }

    /// Forgets the half that has been silent for longer.
    fn forget_half(&mut self) {
        let mut times: Vec<Instant> = self
            .confirmed
            .values()
            .map(|known| known.reported_at)
            .collect();
        let middle = times.len() / 2;
        let (_, median, _) = times.select_nth_unstable(middle);
        let median = *median;

        self.confirmed.retain(|_, known| known.reported_at > median);
    }
}
