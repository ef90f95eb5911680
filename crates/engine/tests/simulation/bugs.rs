//! Mistakes that were made elsewhere, planted here one at a time: each must be caught.
//!
//! Those of a store stand below, as other versions of its operations. Those of a node are in the node's own steps.

use longhaul_domain::{
    Clock as _, Lease, LeaseToken, NewTask, NodeId, Phase, Status, StoreError, Task, TaskId,
    contract::{
        Store as _,
        store::{
            ClaimNamed, ClaimRequest, Outcome, Report, RescueRequest, Rescued, Submitted, Verdict,
        },
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
    /// By id and state.
    CompletionByState,
    /// By id, state and attempt, without the token.
    CompletionWithoutToken,
    /// A result is still stored when the task was cancelled meanwhile.
    CancelKeepsResult,
    /// The rescuer writes what it read a round before, without a guard.
    RescueFromSnapshot,
    /// The rescuer judges silence by a clock of its own, which is ahead.
    RescueByNodeClock,
    /// A process that starts again calls itself what it was called before.
    BootIdReused,
    /// A heartbeat makes a dead node live.
    HeartbeatRevives,
    /// A child's end does not reach its parent's counters.
    ChildNotCounted,
    /// It reaches them twice.
    ChildCountedTwice,
    /// The parent's end is left to a later write.
    ParentEndedLater,
    /// A drain on deploy uses up a retry.
    DrainCharged,
    /// A claim does not ask whether the task is due.
    DueIgnored,
    /// An idempotency key is looked up before the insert instead of in it.
    KeyCheckedBefore,
    /// A submit is acknowledged before it is committed.
    AcknowledgedBeforeCommit,
    /// A person's command does not ask whose task it is.
    OwnerNotChecked,
    /// The node drops reports that could not be delivered.
    ReportsDropped,
    /// The node never looks for claims whose answer was lost.
    StraysKept,
    /// The node looks for them and forgets that it has reports on the way.
    StraysForgetReports,
    /// The node claims a task again and lets its own older attempt run on.
    OlderAttemptRunsOn,
    /// A claim by name asks only whether there is such a task: a bell that comes twice starts it twice.
    NameIsEnough,
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
        Self::StraysKept,
        Self::StraysForgetReports,
        Self::OlderAttemptRunsOn,
        Self::NameIsEnough,
    ];
}

/// What a mistake has to remember from one call to the next.
#[derive(Debug, Default)]
pub(crate) struct BugMemory {
    /// The orphans that the rescuer read a round before.
    orphans: Vec<TaskId>,
    /// Two clients are at it at once: both look before either writes.
    pub(crate) race: bool,
    races: u64,
}

/// How far ahead the clock of a rescuer may be that goes by its own, in milliseconds.
const AHEAD_MS: u64 = 20_000;

impl SimStore {
    fn has(&self, bug: PlantedBug) -> bool {
        self.bug == Some(bug)
    }

    fn row(&self, id: TaskId) -> Option<Task> {
        self.memory.look(|tasks, _| tasks.get(&id).cloned())
    }

    fn memory_of_bug(&self) -> std::sync::MutexGuard<'_, BugMemory> {
        self.bug_memory
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// While both clients of a race look first and write then, both find the key unused.
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
        for idempotency in tasks
            .iter_mut()
            .filter_map(|task| task.idempotency.as_mut())
        {
            idempotency.key = format!("{}/unseen {number}", idempotency.key);
        }
        ready(self.memory.submit_tasks(tasks))
    }

    /// The store died with the request, after it had said yes.
    pub(crate) fn acknowledged_without_commit(&self, task: &NewTask) -> Option<Submitted> {
        let dies = self.has(PlantedBug::AcknowledgedBeforeCommit)
            && self.fault() == Some(Fault::LostRequest);
        let is_new = task.idempotency.is_none();
        (dies && is_new).then(|| {
            self.fail_next(None);
            let task_id = TaskId(uuid::Uuid::from_u128(
                self.clock.now().as_micros().unsigned_abs().into(),
            ));
            Submitted {
                task_id,
                repeated: false,
            }
        })
    }

    pub(crate) fn heartbeat_with_bug(
        &self,
        id: NodeId,
        leases: &[Lease],
    ) -> Result<Vec<(Lease, Verdict)>, StoreError> {
        let dead = self.memory.look(|_, nodes| {
            nodes
                .get(&id)
                .filter(|node| node.lost_at.is_some())
                .cloned()
        });
        if let Some(mut node) = dead.filter(|_| self.has(PlantedBug::HeartbeatRevives)) {
            node.lost_at = None;
            self.memory.overwrite_node(node);
        }
        ready(self.memory.heartbeat_node(id, leases))
    }

    pub(crate) fn claim_with_bug(&self, request: &ClaimRequest) -> Result<Vec<Task>, StoreError> {
        let mut claimed = ready(self.memory.claim_tasks(request))?;
        if !self.has(PlantedBug::DueIgnored) || claimed.len() == request.limit {
            return Ok(claimed);
        }
        let served = |task: &&Task| {
            task.status.is_claimable()
                && request.queues.contains(&task.queue)
                && request.task_types.contains(&task.task_type)
                && !self.history().paused.contains(&task.queue)
        };
        if let Some(early) = self
            .memory
            .look(|tasks, _| tasks.values().find(served).cloned())
        {
            let now = self.clock.now();
            let token = LeaseToken(uuid::Uuid::from_u128(now.as_micros().unsigned_abs().into()));
            let due = Task {
                due_at: now,
                ..early
            };
            let transition = claim::decide(&due, request.node_id, &request.host, token, now)?;
            claimed.push(transition.after.clone());
            self.memory.overwrite_task(transition, false);
        }
        Ok(claimed)
    }

    pub(crate) fn named_with_bug(&self, request: &ClaimNamed) -> Result<Vec<Task>, StoreError> {
        let mut claimed = ready(self.memory.claim_named(request))?;
        if !self.has(PlantedBug::NameIsEnough) {
            return Ok(claimed);
        }
        let running = request
            .ids
            .iter()
            .filter_map(|id| self.row(*id))
            .find(|task| task.status == Status::Running);
        if let Some(running) =
            running.filter(|running| claimed.iter().all(|task| task.id != running.id))
        {
            let now = self.clock.now();
            let token = LeaseToken(uuid::Uuid::from_u128(now.as_micros().unsigned_abs().into()));
            let waiting = Task {
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

    pub(crate) fn finish_with_bug(&self, reports: &[Report]) -> Result<Vec<Verdict>, StoreError> {
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

    /// A completion that the weaker guard lets pass.
    fn unguarded(&self, report: &Report) -> Option<Verdict> {
        let lease = report.lease;
        let Outcome::Completed { result, result_url } = &report.outcome else {
            return None;
        };
        let row = self
            .row(lease.task_id)
            .filter(|row| row.lease() != Some(lease))?;
        let (same_attempt, runs) = (row.attempt == lease.attempt, row.status == Status::Running);
        let guards = [
            (PlantedBug::CompletionById, true),
            (PlantedBug::CompletionByState, runs),
            (PlantedBug::CompletionWithoutToken, runs && same_attempt),
            (
                PlantedBug::CancelKeepsResult,
                row.status == Status::Cancelled && same_attempt,
            ),
        ];
        guards
            .into_iter()
            .find(|(bug, passes)| self.has(*bug) && *passes)?;
        let seen = Task {
            status: Status::Running,
            lease_token: Some(lease.token),
            ..row
        };
        let forged = Lease {
            attempt: seen.attempt,
            ..lease
        };
        let now = self.clock.now();
        let transition =
            finish::decide(&seen, &forged, result.clone(), result_url.clone(), now).ok()?;
        let status = transition.after.status;
        self.memory.overwrite_task(transition, false);
        Some(Verdict::Applied(status))
    }

    fn finish_one(&self, report: &Report) -> Result<Verdict, StoreError> {
        let child = self.row(report.lease.task_id);
        let parent = child
            .as_ref()
            .and_then(|child| child.parent_id)
            .and_then(|id| self.row(id));
        let verdict = ready(self.memory.finish_tasks(std::slice::from_ref(report)))?[0];
        let Verdict::Applied(status) = verdict else {
            return Ok(verdict);
        };
        match self.bug {
            Some(PlantedBug::DrainCharged) if report.outcome == Outcome::HandedBack => {
                if let Some(row) = self.row(report.lease.task_id) {
                    self.write(Task {
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
                // A grandparent's counters would need mending too; the plain family is enough.
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

    /// The parent as it was before its child ended, changed in the wrong way.
    fn miscount(&self, before: &Task, step: ChildMove) {
        let Some(now_is) = self.row(before.id) else {
            return;
        };
        match self.bug {
            Some(PlantedBug::ChildNotCounted) => self.write(Task {
                version: now_is.version,
                ..before.clone()
            }),
            Some(PlantedBug::ChildCountedTwice) if now_is.children.open() > 0 => {
                if let Ok(transition) = child_ended::decide(&now_is, &[step], self.clock.now()) {
                    self.memory.overwrite_task(transition, false);
                }
            }
            Some(PlantedBug::ParentEndedLater) if before.status == Status::Waiting => {
                let children = now_is.children;
                self.write(Task {
                    version: now_is.version,
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
            let seen = Task {
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

    /// Writes a row without a decision and without telling anybody.
    fn write(&self, row: Task) {
        let after = Task {
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
