//! Attempts: claims, progress, checkpoints and ends.

use longhaul_domain::{
    Json, Lease, LeaseToken, NodeId, Status, StoreError, TaskId, TaskRecord, Timestamp, bounds,
    contract::store::{AttemptEnd, AttemptReport, ClaimNamed, ClaimRequest, Verdict},
    lifecycle::{
        Refusal, Transition, cancel, checkpoint, claim, fail, finish, hand_back, progress, snooze,
    },
};
use rand::RngExt;
use uuid::Uuid;

use super::state::State;

impl State {
    pub(super) fn claim(
        &mut self,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> Result<Vec<TaskRecord>, StoreError> {
        check_limit(request.limit, bounds::CLAIM_BATCH)?;
        bounds::check_name("host", &request.host)?;
        check_types(&request.task_types)?;
        self.live_node(request.node_id)?;

        let claimable = self.claimable.iter();
        let due = claimable.filter(|(_, due_at, _)| *due_at <= now);
        let tasks = due.map(|(_, _, id)| &self.tasks[id]);
        let served = tasks.filter(|task| self.is_served(request, task));
        let chosen: Vec<TaskId> = served.take(request.limit).map(|task| task.id).collect();

        self.claim_chosen(chosen, request.node_id, &request.host, now)
    }

    /// Whether a claim covers the task's queue and type, and the queue is not paused.
    pub(super) fn is_served(&self, request: &ClaimRequest, task: &TaskRecord) -> bool {
        request.queues.contains(&task.queue)
            && request.task_types.contains(&task.task_type)
            && self.queues[&task.queue].is_none()
    }

    pub(super) fn claim_named(
        &mut self,
        request: &ClaimNamed,
        now: Timestamp,
    ) -> Result<Vec<TaskRecord>, StoreError> {
        bounds::check_batch("ids", request.ids.len(), bounds::CLAIM_BATCH)?;
        bounds::check_name("host", &request.host)?;
        check_types(&request.task_types)?;
        self.live_node(request.node_id)?;

        let mut chosen = Vec::new();
        for (_, due_at, id) in &self.claimable {
            let task = &self.tasks[id];
            let is_named = request.ids.contains(id) && request.task_types.contains(&task.task_type);
            if is_named && *due_at <= now && self.queues[&task.queue].is_none() {
                chosen.push(*id);
            }
        }

        self.claim_chosen(chosen, request.node_id, &request.host, now)
    }

    /// Claims tasks that are known to be due.
    fn claim_chosen(
        &mut self,
        chosen: Vec<TaskId>,
        node_id: NodeId,
        host: &str,
        now: Timestamp,
    ) -> Result<Vec<TaskRecord>, StoreError> {
        let mut claimed = Vec::with_capacity(chosen.len());
        for id in chosen {
            let token = LeaseToken(Uuid::from_u128(self.random.random()));
            let transition = claim::decide(&self.tasks[&id], node_id, host, token, now)?;
            claimed.push(transition.after.clone());
            self.apply(transition, now);
        }

        Ok(claimed)
    }

    pub(super) fn save_progress(
        &mut self,
        reports: &[(Lease, Json)],
        now: Timestamp,
    ) -> Result<Vec<Verdict>, StoreError> {
        bounds::check_batch("reports", reports.len(), bounds::CLAIM_BATCH)?;

        let save = |(lease, progress): &(Lease, Json)| {
            self.write_fenced(lease, now, |task| {
                progress::decide(task, lease, progress.clone(), now)
            })
        };

        Ok(reports.iter().map(save).collect())
    }

    pub(super) fn save_checkpoint(
        &mut self,
        lease: &Lease,
        saved: &Json,
        now: Timestamp,
    ) -> Verdict {
        self.write_fenced(lease, now, |task| {
            checkpoint::decide(task, lease, saved.clone(), now)
        })
    }

    pub(super) fn finish(
        &mut self,
        reports: &[AttemptReport],
        now: Timestamp,
    ) -> Result<Vec<Verdict>, StoreError> {
        bounds::check_batch("reports", reports.len(), bounds::CLAIM_BATCH)?;
        for report in reports {
            check_end(&report.end)?;
        }

        let finish = |report| self.finish_one(report, now);
        Ok(reports.iter().map(finish).collect())
    }

    fn finish_one(&mut self, report: &AttemptReport, now: Timestamp) -> Verdict {
        let lease = &report.lease;
        self.write_fenced(lease, now, |task| match &report.end {
            AttemptEnd::Completed { result, result_url } => {
                finish::decide(task, lease, result.clone(), result_url.clone(), now)
            }
            AttemptEnd::Failed {
                failure,
                retry_in_ms,
            } => fail::decide(
                task,
                lease,
                failure.at(now, lease.attempt),
                *retry_in_ms,
                now,
            ),
            AttemptEnd::Snoozed { reason, delay_ms } => {
                let reason = reason
                    .as_ref()
                    .map(|failure| failure.at(now, lease.attempt));
                snooze::decide(task, lease, reason, *delay_ms, now)
            }
            AttemptEnd::HandedBack => hand_back::decide(task, lease, now),
            AttemptEnd::Cancelled => cancel::decide_by_handler(task, lease, now),
        })
    }

    /// Writes a change that the attempt's lease allows. Returns the verdict.
    fn write_fenced(
        &mut self,
        lease: &Lease,
        now: Timestamp,
        decide: impl FnOnce(&TaskRecord) -> Result<Transition, Refusal>,
    ) -> Verdict {
        let Some(task) = self.tasks.get(&lease.task_id) else {
            return Verdict::Missing;
        };

        match decide(task) {
            Err(refusal) => verdict_of(refusal, task),
            Ok(transition) => {
                let status = transition.after.status;
                if status == Status::Cancelled {
                    self.cancel_tree(transition, now);
                } else {
                    self.apply(transition, now);
                }
                Verdict::Applied(status)
            }
        }
    }
}

pub(super) fn verdict_of(refusal: Refusal, task: &TaskRecord) -> Verdict {
    match refusal {
        Refusal::AlreadyApplied { status } => Verdict::Repeated(status),
        Refusal::WrongState { .. }
        | Refusal::StaleLease { .. }
        | Refusal::NotDue
        | Refusal::NotWaitingForTime { .. }
        | Refusal::NothingToRedo
        | Refusal::TooManyChildren => Verdict::Stale(task.status),
    }
}

fn check_end(end: &AttemptEnd) -> Result<(), StoreError> {
    match end {
        AttemptEnd::Completed {
            result_url: Some(url),
            ..
        } => bounds::check_text("resultUrl", url, bounds::URL_BYTES)?,
        AttemptEnd::Failed {
            retry_in_ms: Some(ms),
            ..
        } => bounds::check_duration_ms("retryIn", *ms)?,
        AttemptEnd::Snoozed { delay_ms, .. } => bounds::check_duration_ms("delay", *delay_ms)?,
        AttemptEnd::Completed {
            result_url: None, ..
        }
        | AttemptEnd::Failed {
            retry_in_ms: None, ..
        }
        | AttemptEnd::HandedBack
        | AttemptEnd::Cancelled => {}
    }

    Ok(())
}

pub(super) fn check_types(task_types: &[String]) -> Result<(), StoreError> {
    for name in task_types {
        bounds::check_label("taskType", name)?;
    }

    Ok(())
}

/// Refuses a limit of zero or above the bound.
pub(super) fn check_limit(limit: usize, max: usize) -> Result<(), StoreError> {
    if (1..=max).contains(&limit) {
        return Ok(());
    }
    Err(longhaul_domain::Invalid::new("limit", format!("is {limit}"), format!("1 to {max}")).into())
}
