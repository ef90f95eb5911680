//! What nodes and their workers write: heartbeats, claims, progress, checkpoints and ends.

use longhaul_domain::{
    Json, Lease, LeaseToken, Node, NodeId, Serves, StoreError, Task, TaskId, Timestamp, bounds,
    contract::store::{ClaimNamed, ClaimRequest, Outcome, Report, Verdict},
    lifecycle::{
        Refusal, Transition, cancel, checkpoint, claim, fail, finish, hand_back, heartbeat,
        progress, snooze,
    },
};
use rand::RngExt;
use uuid::Uuid;

use super::state::State;

impl State {
    pub(super) fn register_node(
        &mut self,
        id: NodeId,
        name: &str,
        host: &str,
        serves: Option<&Serves>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        Node::check(name, host)?;
        let fresh = Node {
            id,
            name: name.to_owned(),
            host: host.to_owned(),
            started_at: now,
            heartbeat_at: now,
            lost_at: None,
            serves: serves.cloned(),
        };
        let node = self.nodes.entry(id).or_insert(fresh);
        if node.lost_at.is_some() {
            return Err(StoreError::NodeLost);
        }
        (node.name, node.host, node.heartbeat_at) = (name.to_owned(), host.to_owned(), now);
        Ok(())
    }

    pub(super) fn live_node(&mut self, id: NodeId) -> Result<&mut Node, StoreError> {
        self.nodes
            .get_mut(&id)
            .filter(|node| node.lost_at.is_none())
            .ok_or(StoreError::NodeLost)
    }

    pub(super) fn heartbeat(
        &mut self,
        id: NodeId,
        leases: &[Lease],
        now: Timestamp,
    ) -> Result<Vec<(Lease, Verdict)>, StoreError> {
        bounds::check_batch("leases", leases.len(), bounds::CLAIM_BATCH)?;
        self.live_node(id)?.heartbeat_at = now;
        let gone = |lease: &Lease| {
            let verdict = match self.tasks.get(&lease.task_id) {
                None => Verdict::Missing,
                Some(task) => verdict_of(heartbeat::decide(task, lease).err()?, task),
            };
            Some((*lease, verdict))
        };
        Ok(leases.iter().filter_map(gone).collect())
    }

    pub(super) fn hand_back_strays(
        &mut self,
        node: NodeId,
        held: &[Lease],
        older_than_ms: u64,
        now: Timestamp,
    ) -> Result<Vec<TaskId>, StoreError> {
        bounds::check_batch("held", held.len(), bounds::HELD)?;
        bounds::check_duration_ms("olderThan", older_than_ms)?;
        let old = |task: &&Task| {
            task.last_attempt_at
                .is_some_and(|at| at.plus_ms(older_than_ms) <= now)
        };
        let claimed = self
            .tasks
            .values()
            .filter(|task| task.node_id == Some(node))
            .filter(old);
        let strays = claimed
            .filter_map(Task::lease)
            .filter(|lease| !held.contains(lease));
        let strays: Vec<Lease> = strays.take(bounds::MAINTENANCE_BATCH).collect();
        for lease in &strays {
            let transition = hand_back::decide(&self.tasks[&lease.task_id], lease, now)?;
            self.apply(transition, now);
        }
        Ok(strays.into_iter().map(|lease| lease.task_id).collect())
    }

    pub(super) fn claim(
        &mut self,
        request: &ClaimRequest,
        now: Timestamp,
    ) -> Result<Vec<Task>, StoreError> {
        check_limit(request.limit, bounds::CLAIM_BATCH)?;
        bounds::check_name("host", &request.host)?;
        request
            .queues
            .iter()
            .try_for_each(|queue| bounds::check_label("queue", queue))?;
        request
            .task_types
            .iter()
            .try_for_each(|name| bounds::check_label("taskType", name))?;
        self.live_node(request.node_id)?;

        let due = self
            .claimable
            .iter()
            .filter(|(_, due_at, _)| *due_at <= now);
        let wanted = due.map(|(_, _, id)| &self.tasks[id]).filter(|task| {
            let served = request.queues.contains(&task.queue)
                && request.task_types.contains(&task.task_type);
            served && self.queues[&task.queue].is_none()
        });
        let chosen: Vec<TaskId> = wanted.take(request.limit).map(|task| task.id).collect();
        self.hand_out(chosen, request.node_id, &request.host, now)
    }

    pub(super) fn claim_named(
        &mut self,
        request: &ClaimNamed,
        now: Timestamp,
    ) -> Result<Vec<Task>, StoreError> {
        bounds::check_batch("ids", request.ids.len(), bounds::CLAIM_BATCH)?;
        bounds::check_name("host", &request.host)?;
        request
            .task_types
            .iter()
            .try_for_each(|name| bounds::check_label("taskType", name))?;
        self.live_node(request.node_id)?;

        let due = self
            .claimable
            .iter()
            .filter(|(_, due_at, id)| *due_at <= now && request.ids.contains(id));
        let wanted = due
            .map(|(_, _, id)| &self.tasks[id])
            .filter(|task| request.task_types.contains(&task.task_type));
        let chosen = wanted
            .filter(|task| self.queues[&task.queue].is_none())
            .map(|task| task.id)
            .collect();
        self.hand_out(chosen, request.node_id, &request.host, now)
    }

    /// Claims tasks that were found to be due.
    fn hand_out(
        &mut self,
        chosen: Vec<TaskId>,
        node_id: NodeId,
        host: &str,
        now: Timestamp,
    ) -> Result<Vec<Task>, StoreError> {
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
        let save = |(lease, told): &(Lease, Json)| {
            self.write_fenced(lease, now, |task| {
                progress::decide(task, lease, told.clone(), now)
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
        reports: &[Report],
        now: Timestamp,
    ) -> Result<Vec<Verdict>, StoreError> {
        bounds::check_batch("reports", reports.len(), bounds::CLAIM_BATCH)?;
        reports
            .iter()
            .try_for_each(|report| check_outcome(&report.outcome))?;
        Ok(reports
            .iter()
            .map(|report| self.finish_one(report, now))
            .collect())
    }

    fn finish_one(&mut self, report: &Report, now: Timestamp) -> Verdict {
        let lease = &report.lease;
        self.write_fenced(lease, now, |task| match &report.outcome {
            Outcome::Completed { result, result_url } => {
                finish::decide(task, lease, result.clone(), result_url.clone(), now)
            }
            Outcome::Failed {
                failure,
                retry_in_ms,
            } => fail::decide(
                task,
                lease,
                failure.at(now, lease.attempt),
                *retry_in_ms,
                now,
            ),
            Outcome::Snoozed { reason, delay_ms } => {
                let reason = reason
                    .as_ref()
                    .map(|failure| failure.at(now, lease.attempt));
                snooze::decide(task, lease, reason, *delay_ms, now)
            }
            Outcome::HandedBack => hand_back::decide(task, lease, now),
            Outcome::Cancelled => cancel::decide_by_handler(task, lease, now),
        })
    }

    /// Writes what a worker's lease allows, and tells the worker what became of it.
    fn write_fenced(
        &mut self,
        lease: &Lease,
        now: Timestamp,
        decide: impl FnOnce(&Task) -> Result<Transition, Refusal>,
    ) -> Verdict {
        let Some(task) = self.tasks.get(&lease.task_id) else {
            return Verdict::Missing;
        };
        match decide(task) {
            Err(refusal) => verdict_of(refusal, task),
            Ok(transition) => {
                let status = transition.after.status;
                if status == longhaul_domain::Status::Cancelled {
                    self.cancel_tree(transition, now);
                } else {
                    self.apply(transition, now);
                }
                Verdict::Applied(status)
            }
        }
    }
}

pub(super) fn verdict_of(refusal: Refusal, task: &Task) -> Verdict {
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

fn check_outcome(outcome: &Outcome) -> Result<(), StoreError> {
    match outcome {
        Outcome::Completed {
            result_url: Some(url),
            ..
        } => bounds::check_text("resultUrl", url, bounds::URL_BYTES)?,
        Outcome::Failed {
            retry_in_ms: Some(ms),
            ..
        } => bounds::check_duration_ms("retryIn", *ms)?,
        Outcome::Snoozed { delay_ms, .. } => bounds::check_duration_ms("delay", *delay_ms)?,
        Outcome::Completed {
            result_url: None, ..
        }
        | Outcome::Failed {
            retry_in_ms: None, ..
        }
        | Outcome::HandedBack
        | Outcome::Cancelled => {}
    }
    Ok(())
}

/// Refuses a limit that asks for nothing or for too much.
pub(super) fn check_limit(limit: usize, max: usize) -> Result<(), StoreError> {
    if (1..=max).contains(&limit) {
        return Ok(());
    }
    Err(longhaul_domain::Invalid::new("limit", format!("is {limit}"), format!("1 to {max}")).into())
}
