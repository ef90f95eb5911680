//! Finish: records the ends of attempts that ran on this node, and publishes what they mean for
//! their tasks and for parents.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{
    Status, StoreError, TaskRecord, Timestamp,
    contract::{
        broker::Hint,
        store::{Access, AttemptEnd, AttemptReport, Verdict},
    },
    event::{EventKind, TaskEvent},
};

use crate::{
    Engine, TaskInfo,
    log::{self, TaskFields},
};

/// The report of an attempt that ended, with what its events and hints need.
#[derive(Debug, Clone)]
pub struct EndedAttempt {
    pub report: AttemptReport,
    pub info: Arc<TaskInfo>,
    /// How long the attempt ran on this node, if its handler ran.
    pub ran: Option<Duration>,
    /// Whether the attempt wrote to the task's output stream.
    pub has_output: bool,
    /// The task's version after the claim.
    version: u64,
    /// The task's retries after the claim.
    retry_count: u32,
    priority: u8,
    created_at: Timestamp,
    trace_context: Option<String>,
}

impl EndedAttempt {
    /// The end of an attempt of `task`, which is as it was claimed. The executor of a handler sets
    /// `ran` and `has_output`.
    pub fn new(task: &TaskRecord, info: Arc<TaskInfo>, report: AttemptReport) -> Self {
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

    /// The hint of the task's next attempt, and the delay until it is due in milliseconds.
    fn next_hint(&self, now: Option<Timestamp>) -> (Hint, u64) {
        let (delay_ms, failures) = match &self.report.end {
            AttemptEnd::Failed { retry_in_ms, .. } => (retry_in_ms.unwrap_or(0), 1),
            AttemptEnd::Snoozed { delay_ms, .. } => (*delay_ms, 0),
            AttemptEnd::Completed { .. } | AttemptEnd::HandedBack | AttemptEnd::Cancelled => (0, 0),
        };

        let hint = Hint {
            task_id: self.report.lease.task_id,
            owner: self.info.owner.clone(),
            task_type: self.info.task_type.clone(),
            queue: self.info.queue.clone(),
            priority: self.priority,
            retry_count: self.retry_count + failures,
            submitted_at: self.created_at,
            due_at: now.unwrap_or(self.created_at).plus_ms(delay_ms),
            lookups: 0,
            correlation_id: self.info.correlation_id.clone(),
            trace_context: self.trace_context.clone(),
        };
        (hint, delay_ms)
    }
}

impl Engine {
    /// Records the reports and publishes their ends. After an error it is unknown whether they were
    /// recorded, and the same reports may be sent again.
    pub async fn finish(&self, ended: &[EndedAttempt]) -> Result<Vec<Verdict>, StoreError> {
        let reports: Vec<AttemptReport> = ended.iter().map(|one| one.report.clone()).collect();
        let verdicts = self.store.finish_tasks(&reports).await?;

        let mut parents = BTreeSet::new();
        for (one, verdict) in ended.iter().zip(&verdicts) {
            // Read before it is forgotten with the attempt.
            let raise = self.live.version_raise(&one.report.lease);
            self.forget_progress(&one.report.lease);

            if let Verdict::Applied(status) = verdict {
                self.publish_end(one, *status, raise).await;
                if status.is_ended() {
                    parents.extend(one.info.parent_id);
                }
            }
        }

        self.publish_parents(parents).await;
        Ok(verdicts)
    }

    /// Counts, logs and publishes an end that the store has applied.
    async fn publish_end(&self, one: &EndedAttempt, status: Status, raise: Option<u64>) {
        self.count_attempt(one, status);
        let fields = TaskFields::of_attempt(&one.info);
        if let AttemptEnd::Failed { failure, .. } = &one.report.end {
            log::attempt_failed(fields, &failure.message, status);
        }

        let event = EventKind::of_status(status);
        log::task_changed(fields, event);
        if self.count_event(event, one.report.lease.task_id, &one.info.owner) {
            let version = self.version_after(one, raise).await;
            let event = TaskEvent::attempt_ended(&one.info, &one.report, status, version);
            self.bus.publish(event);
        }

        if status.is_claimable() {
            self.notifier.notify(&one.info.queue);
            if self.direct_dispatch.is_some() {
                let (hint, delay_ms) = one.next_hint(self.store_time.now());
                self.publish_hint_in(hint, delay_ms);
            }
        }
        if status == Status::Cancelled {
            // Its children are cancelled too, and may run here.
            self.wakeups.notify_leases();
        }
    }

    fn count_attempt(&self, one: &EndedAttempt, status: Status) {
        let task_type = &one.info.task_type;
        if let Some(ran) = one.ran {
            self.metrics.ran(task_type, status, ran);
        }

        let has_failed = matches!(one.report.end, AttemptEnd::Failed { .. });
        if status == Status::Retrying && has_failed {
            self.metrics.of_type(task_type).retries.inc();
        }
        if status.is_ended() {
            self.metrics.ended(task_type, status, 1);
        }
    }

    /// The version of the task after its end. The store is asked only where the attempt's own
    /// writes do not tell it, which is never the case for a plain task.
    async fn version_after(&self, one: &EndedAttempt, raise: Option<u64>) -> u64 {
        let version = one.version + raise.unwrap_or(0) + 1;
        if raise.is_some() {
            return version;
        }

        let task_id = one.report.lease.task_id;
        match self.store.get_task(&Access::All, task_id).await {
            Ok(task) => task.version,
            Err(error) => {
                tracing::debug!(
                    %error,
                    task_id = %task_id.0,
                    "reading the version of an ended task failed; its event has an estimate"
                );
                version
            }
        }
    }
}
