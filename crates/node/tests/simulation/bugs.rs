//! Known mistakes of other systems, planted one at a time. The simulation must catch each.
//!
//! The mistakes of a store are below, as wrong versions of its operations. Those of a node are in
//! the steps of `node.rs`.

use longhaul_domain::{
    Clock as _, Lease, LeaseToken, NewTask, NodeId, Phase, Status, StoreError, TaskId, TaskRecord,
    contract::store::{
        AttemptEnd, AttemptReport, ClaimNamed, ClaimRequest, Leases, RescueRequest, Rescued,
        Submitted, TaskCommands, Verdict,
    },
    lifecycle::{
        Transition,
        child_ended::{self, ChildMove},
        claim, finish, rescue,
    },
};

use crate::store::{Fault, SimStore, ready};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlantedBug {
    /// A completion is guarded by the task's id alone.
    CompletionById,
    /// A completion is guarded by id and state alone.
    CompletionByState,
    /// A completion is guarded by id, state and attempt, without the token.
    CompletionWithoutToken,
    /// A result is stored although the task was cancelled in the meantime.
    CancelKeepsResult,
    /// The rescuer writes what it read one round earlier, without a guard.
    RescueFromSnapshot,
    /// The rescuer measures silence by its own clock, which is ahead.
    RescueByNodeClock,
    /// A process that restarts reuses its node id.
    BootIdReused,
    /// A heartbeat revives a dead node.
    HeartbeatRevives,
    /// A child's end is not counted in its parent.
    ChildNotCounted,
    /// A child's end is counted twice in its parent.
    ChildCountedTwice,
    /// The parent's end is left to a later write.
    ParentEndedLater,
    /// A drain on deploy uses up a retry.
    DrainCharged,
    /// A claim ignores the due time.
    DueIgnored,
    /// An idempotency key is looked up before the insert instead of in it.
    KeyCheckedBefore,
    /// A submit is acknowledged before it is committed.
    AcknowledgedBeforeCommit,
    /// A command does not check the task's owner.
    OwnerNotChecked,
    /// The node drops reports that could not be delivered.
    ReportsDropped,
    /// The node never hands back claims whose answer was lost.
    StraysNeverHandedBack,
    /// The node hands them back without regard to reports that are being delivered.
    StraysIgnoreReports,
    /// The node claims a task again and does not stop its own older attempt.
    OlderAttemptRunsOn,
    /// A claim by name checks only that the task exists, so a repeated hint starts it twice.
    ClaimByNameUnguarded,
}

impl PlantedBug {
    pub(crate) const ALL: [Self; 21] = [
        Self::CompletionById,
        Self::CompletionByState,
        Self::CompletionWithoutToken,
        Self::CancelKeepsResult,
        Self::RescueFromSnapshot,
        Self::RescueByNodeClock,
        Self::BootIdReused,
        Self::HeartbeatRevives,
        Self::ChildNotCounted,
        Self::ChildCountedTwice,
        Self::ParentEndedLater,
        Self::DrainCharged,
        Self::DueIgnored,
        Self::KeyCheckedBefore,
        Self::AcknowledgedBeforeCommit,
        Self::OwnerNotChecked,
        Self::ReportsDropped,
        Self::StraysNeverHandedBack,
        Self::StraysIgnoreReports,
        Self::OlderAttemptRunsOn,
        Self::ClaimByNameUnguarded,
    ];
}

/// What a planted bug remembers from one call to the next.
#[derive(Debug, Default)]
pub(crate) struct BugMemory {
    /// The orphans that the rescuer read one round earlier.
    orphans: Vec<TaskId>,
    /// Two clients submit at once: both look the key up before either writes.
    race: bool,
    races: u64,
}

/// How far ahead the rescuer's own clock is, in milliseconds.
const AHEAD_MS: u64 = 20_000;

impl SimStore {
    fn has(&self, bug: PlantedBug) -> bool {
        self.bug == Some(bug)
    }

    fn row(&self, id: TaskId) -> Option<TaskRecord> {
        self.memory.look(|tasks, _| tasks.get(&id).cloned())
    }

    fn memory_of_bug(&self) -> std::sync::MutexGuard<'_, BugMemory> {
        self.bug_memory
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn set_race(&self, race: bool) {
        self.memory_of_bug().race = race;
    }

    /// In a race both clients look the key up before either writes, so both find it unused.
    pub(crate) fn submit_with_bug(&self, tasks: &[NewTask]) -> Result<Vec<Submitted>, StoreError> {
        let is_raced = self.has(PlantedBug::KeyCheckedBefore) && self.memory_of_bug().race;
        if !is_raced {
            return ready(self.memory.submit_tasks(tasks.to_vec()));
        }

        let number = {
            let mut memory = self.memory_of_bug();
            memory.races += 1;
            memory.races
        };

        let mut tasks = tasks.to_vec();
        for task in &mut tasks {
            if let Some(idempotency) = &mut task.idempotency {
                idempotency.key = format!("{}/unseen {number}", idempotency.key);
            }
        }

        ready(self.memory.submit_tasks(tasks))
    }

    /// The store acknowledges a submission and dies before it commits.
    pub(crate) fn acknowledged_without_commit(&self, task: &NewTask) -> Option<Submitted> {
        let dies = self.has(PlantedBug::AcknowledgedBeforeCommit)
            && self.fault() == Some(Fault::LostRequest);
        let is_new = task.idempotency.is_none();

        if !dies || !is_new {
            return None;
        }

        self.fail_next(None);
        let micros = self.clock.now().as_micros().unsigned_abs();
        Some(Submitted {
            task_id: TaskId(uuid::Uuid::from_u128(micros.into())),
            repeated: false,
        })
    }

    pub(crate) fn heartbeat_with_bug(
        &self,
        id: NodeId,
        leases: &[Lease],
    ) -> Result<Vec<(Lease, Verdict)>, StoreError> {
        let node = self.memory.look(|_, nodes| nodes.get(&id).cloned());
        if let Some(mut node) = node
            && node.lost_at.is_some()
            && self.has(PlantedBug::HeartbeatRevives)
        {
            node.lost_at = None;
            self.memory.overwrite_node(node);
        }

        ready(self.memory.heartbeat_node(id, leases))
    }

    pub(crate) fn claim_with_bug(
        &self,
        request: &ClaimRequest,
    ) -> Result<Vec<TaskRecord>, StoreError> {
        let mut claimed = ready(self.memory.claim_tasks(request))?;
        if !self.has(PlantedBug::DueIgnored) || claimed.len() == request.limit {
            return Ok(claimed);
        }

        let served = |task: &&TaskRecord| {
            task.status.is_claimable()
                && request.queues.contains(&task.queue)
                && request.task_types.contains(&task.task_type)
                && !self.history().paused.contains(&task.queue)
        };

        let early = self
            .memory
            .look(|tasks, _| tasks.values().find(served).cloned());
        if let Some(early) = early {
            let now = self.clock.now();
            let token = LeaseToken(uuid::Uuid::from_u128(now.as_micros().unsigned_abs().into()));
            let due = TaskRecord {
                due_at: now,
                ..early
            };
            let transition = claim::decide(&due, request.node_id, &request.host, token, now)?;
            claimed.push(transition.after.clone());
            self.memory.overwrite_task(transition, false);
        }

        Ok(claimed)
    }

    pub(crate) fn named_with_bug(
        &self,
        request: &ClaimNamed,
    ) -> Result<Vec<TaskRecord>, StoreError> {
        let mut claimed = ready(self.memory.claim_named(request))?;
        if !self.has(PlantedBug::ClaimByNameUnguarded) {
            return Ok(claimed);
        }

        let mut rows = request.ids.iter().filter_map(|id| self.row(*id));
        let running = rows.find(|task| task.status == Status::Running);
        if let Some(running) = running
            && claimed.iter().all(|task| task.id != running.id)
        {
            let now = self.clock.now();
            let token = LeaseToken(uuid::Uuid::from_u128(now.as_micros().unsigned_abs().into()));
            let waiting = TaskRecord {
                status: Status::Queued,
                due_at: now,
                ..running
            };
            let transition = claim::decide(&waiting, request.node_id, &request.host, token, now)?;
            claimed.push(transition.after.clone());
            self.memory.overwrite_task(transition, false);
        }

        Ok(claimed)
    }

    pub(crate) fn finish_with_bug(
        &self,
        reports: &[AttemptReport],
    ) -> Result<Vec<Verdict>, StoreError> {
        if self.bug.is_none() {
            return ready(self.memory.finish_tasks(reports));
        }

        let mut verdicts = Vec::with_capacity(reports.len());
        for report in reports {
            let verdict = match self.unguarded(report) {
                Some(verdict) => verdict,
                None => self.finish_one(report)?,
            };
            verdicts.push(verdict);
        }

        Ok(verdicts)
    }

    /// Applies a completion that the weaker guard of the planted bug accepts.
    fn unguarded(&self, report: &AttemptReport) -> Option<Verdict> {
        let lease = report.lease;
        let AttemptEnd::Completed { result, result_url } = &report.end else {
            return None;
        };
        let row = self.row(lease.task_id)?;
        if row.lease() == Some(lease) {
            return None;
        }

        let same_attempt = row.attempt == lease.attempt;
        let runs = row.status == Status::Running;

        let guards = [
            (PlantedBug::CompletionById, true),
            (PlantedBug::CompletionByState, runs),
            (PlantedBug::CompletionWithoutToken, runs && same_attempt),
            (
                PlantedBug::CancelKeepsResult,
                row.status == Status::Cancelled && same_attempt,
            ),
        ];

        let accepted = |(bug, passes): &(PlantedBug, bool)| self.has(*bug) && *passes;
        guards.iter().find(|guard| accepted(guard))?;

        let seen = TaskRecord {
            status: Status::Running,
            lease_token: Some(lease.token),
            ..row
        };
        let forged = Lease {
            attempt: seen.attempt,
            ..lease
        };

        let now = self.clock.now();
        let decided = finish::decide(&seen, &forged, result.clone(), result_url.clone(), now);
        let transition = decided.ok()?;
        let status = transition.after.status;
        self.memory.overwrite_task(transition, false);

        Some(Verdict::Applied(status))
    }

    fn finish_one(&self, report: &AttemptReport) -> Result<Verdict, StoreError> {
        let child = self.row(report.lease.task_id);
        let parent_id = child.as_ref().and_then(|child| child.parent_id);
        let parent = parent_id.and_then(|id| self.row(id));

        let verdict = ready(self.memory.finish_tasks(std::slice::from_ref(report)))?[0];
        let Verdict::Applied(status) = verdict else {
            return Ok(verdict);
        };

        match self.bug {
            Some(PlantedBug::DrainCharged) if report.end == AttemptEnd::HandedBack => {
                if let Some(row) = self.row(report.lease.task_id) {
                    self.write(TaskRecord {
                        retry_count: row.retry_count + 1,
                        ..row
                    });
                }
            }
            Some(
                PlantedBug::ChildNotCounted
                | PlantedBug::ChildCountedTwice
                | PlantedBug::ParentEndedLater,
            ) => {
                let step = child.and_then(|child| ChildMove::between(Some(child.status), status));
                // A grandparent's counters would have to be adjusted too; one level is enough.
                if let Some((parent, step)) =
                    parent.filter(|parent| parent.parent_id.is_none()).zip(step)
                {
                    self.miscount(&parent, step);
                }
            }
            _ => {}
        }

        Ok(verdict)
    }

    /// Writes the parent as it was before its child ended, changed in the wrong way.
    fn miscount(&self, before: &TaskRecord, step: ChildMove) {
        let Some(current) = self.row(before.id) else {
            return;
        };

        match self.bug {
            Some(PlantedBug::ChildNotCounted) => self.write(TaskRecord {
                version: current.version,
                ..before.clone()
            }),
            Some(PlantedBug::ChildCountedTwice) if current.children.open() > 0 => {
                if let Ok(transition) = child_ended::decide(&current, &[step], self.clock.now()) {
                    self.memory.overwrite_task(transition, false);
                }
            }
            Some(PlantedBug::ParentEndedLater) if before.status == Status::Waiting => {
                let children = current.children;
                self.write(TaskRecord {
                    version: current.version,
                    children,
                    phase: Phase::Run,
                    ..before.clone()
                });
            }
            _ => {}
        }
    }

    pub(crate) fn rescue_with_bug(&self, request: &RescueRequest) -> Result<Rescued, StoreError> {
        if self.has(PlantedBug::RescueByNodeClock) {
            let lease_ms = request.lease_ms.saturating_sub(AHEAD_MS);
            return ready(self.memory.rescue_tasks(&RescueRequest {
                lease_ms,
                ..*request
            }));
        }

        if !self.has(PlantedBug::RescueFromSnapshot) {
            return ready(self.memory.rescue_tasks(request));
        }

        let now = self.clock.now();
        let read = self.memory.look(|tasks, nodes| {
            let silent = |id: NodeId| {
                nodes.get(&id).is_none_or(|node| {
                    node.lost_at.is_some() || node.heartbeat_at.plus_ms(request.lease_ms) <= now
                })
            };
            let running = tasks.values().filter(|task| task.status == Status::Running);

            running
                .filter(|task| task.node_id.is_some_and(silent))
                .map(|task| task.id)
                .collect::<Vec<_>>()
        });

        let before = std::mem::replace(&mut self.memory_of_bug().orphans, read);
        let rescued = ready(self.memory.rescue_tasks(request))?;
        for row in before.into_iter().filter_map(|id| self.row(id)) {
            let seen = TaskRecord {
                status: Status::Running,
                ..row
            };
            let decided = seen
                .node_id
                .map(|node| rescue::decide(&seen, Some(node), request.max_crashes, now));
            if let Some(Ok(transition)) = decided {
                self.memory.overwrite_task(transition, false);
            }
        }

        Ok(rescued)
    }

    /// Writes a row without a decision and without an event.
    fn write(&self, row: TaskRecord) {
        let after = TaskRecord {
            version: row.version + 1,
            ..row
        };

        self.memory.overwrite_task(
            Transition {
                after,
                archived: None,
                event: None,
            },
            false,
        );
    }
}
