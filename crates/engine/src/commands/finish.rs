//! Finish: the ends of attempts that ran on this node, and what their ends mean for parents.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{
    Status, StoreError, Task, TaskId, Timestamp,
    contract::{
        broker::Bell,
        store::{Access, Outcome, Report, Verdict},
    },
    event::{EventKind, TaskEvent},
};

use crate::{Engine, TaskInfo};

/// A report with what the listeners are told of its task.
#[derive(Debug, Clone)]
pub struct Ended {
    pub report: Report,
    pub info: Arc<TaskInfo>,
    /// How long the attempt ran here, if it did.
    pub ran: Option<Duration>,
    /// Whether the attempt wrote to the task's output stream.
    pub has_output: bool,
    /// As the claim left it.
    version: u64,
    /// As the claim left it.
    retry_count: u32,
    priority: u8,
    created_at: Timestamp,
    trace_context: Option<String>,
}

impl Ended {
    /// The end of an attempt of this task, which is as it was claimed. Whoever ran a handler sets `ran` and `has_output`.
    pub fn new(task: &Task, info: Arc<TaskInfo>, report: Report) -> Self {
        Self {
            report,
            info,
            ran: None,
            has_output: false,
            version: task.version,
            retry_count: task.retry_count,
            priority: task.priority,
            created_at: task.created_at,
            trace_context: task.trace_context.clone(),
        }
    }
}

impl Engine {
    /// Records the reports and tells what became of them. On an error nothing is known; the same reports may be sent
    /// again.
    pub async fn finish(&self, ended: &[Ended]) -> Result<Vec<Verdict>, StoreError> {
        let reports: Vec<Report> = ended.iter().map(|one| one.report.clone()).collect();
        let verdicts = self.store.finish_tasks(&reports).await?;
        let mut parents = BTreeSet::new();
        for (one, verdict) in ended.iter().zip(&verdicts) {
            let raised_by = self.hot.raised_by(&one.report.lease);
            self.forget_progress(&one.report.lease);
            let Verdict::Applied(status) = verdict else {
                continue;
            };
            self.count_attempt(one, *status);
            log_failure(one, *status);
            let event = kind_of(*status);
            if self.note_news(event, one.report.lease.task_id, &one.info.owner) {
                let version = self.version_after(one, raised_by).await;
                self.bus.publish(news(one, event, *status, version));
            }
            if status.is_claimable() {
                self.doorbell.ring(&one.info.queue);
                self.ring_after(one);
            }
            if status.is_ended() {
                parents.extend(one.info.parent_id);
            }
            if *status == Status::Cancelled {
                // Its children are, too, and may run here.
                self.look_at_leases.notify_one();
            }
        }
        self.look_at_parents(parents).await;
        Ok(verdicts)
    }

    /// Rings for the next attempt, when it is due.
    fn ring_after(&self, one: &Ended) {
        if self.direct_ring.is_none() {
            return;
        }
        let (delay_ms, failures) = match &one.report.outcome {
            Outcome::Failed { retry_in_ms, .. } => (retry_in_ms.unwrap_or(0), 1),
            Outcome::Snoozed { delay_ms, .. } => (*delay_ms, 0),
            Outcome::Completed { .. } | Outcome::HandedBack | Outcome::Cancelled => (0, 0),
        };
        let bell = Bell {
            task_id: one.report.lease.task_id,
            owner: one.info.owner.clone(),
            task_type: one.info.task_type.clone(),
            queue: one.info.queue.clone(),
            priority: one.priority,
            retry_count: one.retry_count + failures,
            submitted_at: one.created_at,
            due_at: self
                .store_time
                .now()
                .unwrap_or(one.created_at)
                .plus_ms(delay_ms),
            looks: 0,
            correlation_id: one.info.correlation_id.clone(),
            trace_context: one.trace_context.clone(),
        };
        self.ring_in(bell, delay_ms);
    }

    fn count_attempt(&self, one: &Ended, status: Status) {
        if let Some(ran) = one.ran {
            self.metrics.ran(&one.info.task_type, status, ran);
        }
        if status == Status::Retrying && matches!(one.report.outcome, Outcome::Failed { .. }) {
            self.metrics.of_type(&one.info.task_type).retries.inc();
        }
        if status.is_ended() {
            self.metrics.ended(&one.info.task_type, status, 1);
        }
    }

    /// The version that the end has left. What only the store knows is asked for: no plain task needs it.
    async fn version_after(&self, one: &Ended, raised_by: Option<u64>) -> u64 {
        let version = one.version + raised_by.unwrap_or(0) + 1;
        if raised_by.is_some() {
            return version;
        }
        match self
            .store
            .get_task(&Access::All, one.report.lease.task_id)
            .await
        {
            Ok(task) => task.version,
            Err(error) => {
                tracing::debug!(%error, "the version of an ended task is a guess");
                version
            }
        }
    }

    /// A child's end may have ended its parent, or called it back for its finish step. A parent's end may have done so to
    /// its own.
    pub(crate) async fn look_at_parents(&self, mut parents: BTreeSet<TaskId>) {
        while let Some(id) = parents.pop_first() {
            let parent = match self.store.get_task(&Access::All, id).await {
                Ok(parent) => parent,
                Err(error) => {
                    tracing::debug!(%error, task_id = %id.0, "no news of a parent");
                    continue;
                }
            };
            match parent.status {
                Status::Queued => {
                    self.tell(&parent, EventKind::Requeued);
                    self.doorbell.ring(&parent.queue);
                    self.ring_for_task(&parent);
                }
                Status::Completed | Status::CompletedWithErrors | Status::Failed => {
                    if self.tell(&parent, kind_of(parent.status)) {
                        parents.extend(parent.parent_id);
                    }
                }
                Status::Running
                | Status::Retrying
                | Status::Waiting
                | Status::Cancelled
                | Status::DeadLetter => {}
            }
        }
    }
}

/// Failures are in the task's row, and in the log for whoever reads that first.
fn log_failure(one: &Ended, status: Status) {
    let Outcome::Failed { failure, .. } = &one.report.outcome else {
        return;
    };
    let (task_id, attempt, error) = (
        one.report.lease.task_id.0,
        one.report.lease.attempt,
        &failure.message,
    );
    let task_type = &one.info.task_type;
    match status {
        Status::Retrying => {
            tracing::info!(%task_id, task_type, attempt, error, "an attempt has failed; there will be another one")
        }
        Status::Failed | Status::DeadLetter => {
            tracing::warn!(%task_id, task_type, attempt, error, status = status.as_str(), "a task has failed for good");
        }
        Status::Queued
        | Status::Running
        | Status::Waiting
        | Status::Completed
        | Status::CompletedWithErrors
        | Status::Cancelled => {}
    }
}

pub(crate) const fn kind_of(status: Status) -> EventKind {
    match status {
        Status::Completed | Status::CompletedWithErrors => EventKind::Completed,
        Status::Failed => EventKind::Failed,
        Status::DeadLetter => EventKind::DeadLettered,
        Status::Cancelled => EventKind::Cancelled,
        Status::Waiting => EventKind::Waiting,
        Status::Retrying => EventKind::Retrying,
        Status::Queued | Status::Running => EventKind::Requeued,
    }
}

fn news(one: &Ended, event: EventKind, status: Status, version: u64) -> TaskEvent {
    let error = match &one.report.outcome {
        Outcome::Failed { failure, .. } => Some(failure.message.clone()),
        Outcome::Snoozed { reason, .. } => reason.as_ref().map(|reason| reason.message.clone()),
        Outcome::Completed { .. } | Outcome::HandedBack | Outcome::Cancelled => None,
    };
    TaskEvent {
        task_id: one.report.lease.task_id,
        owner: one.info.owner.clone(),
        task_type: one.info.task_type.clone(),
        event,
        status,
        attempt: one.report.lease.attempt,
        version,
        sequence: 0,
        progress: None,
        error,
        correlation_id: one.info.correlation_id.clone(),
    }
}
