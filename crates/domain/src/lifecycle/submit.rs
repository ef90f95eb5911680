//! Submit: a new task enters as `QUEUED`.

use super::Transition;
use crate::{
    error::Invalid,
    event::EventKind,
    ids::TaskId,
    submission::{NewTask, RunAt},
    task::{ChildCounts, Phase, Status, TaskRecord},
    time::Timestamp,
};

/// The task that `new` makes at `now`.
pub fn decide(new: &NewTask, id: TaskId, now: Timestamp) -> Result<Transition, Invalid> {
    new.check()?;
    let due_at = match new.run_at {
        RunAt::Now => now,
        RunAt::At(moment) => moment,
        RunAt::AfterMs(ms) => now.plus_ms(ms),
    };

    let after = TaskRecord {
        id,
        parent_id: new.parent.map(|lease| lease.task_id),
        owner: new.owner.to_string(),
        tier: new.tier.clone(),
        task_type: new.task_type.to_string(),
        task_key: new.task_key.clone(),
        queue: new.queue.clone(),
        priority: new.priority,
        status: Status::Queued,
        phase: Phase::Run,
        attempt: 0,
        max_attempts: new.max_attempts,
        retry_count: 0,
        snooze_count: 0,
        crash_count: 0,
        version: 1,
        created_at: now,
        updated_at: now,
        due_at,
        started_at: None,
        last_attempt_at: None,
        finished_at: None,
        deadline_at: new.deadline_at,
        timeout_ms: new.timeout_ms,
        lease_token: None,
        node_id: None,
        host: None,
        children: ChildCounts::default(),
        finish_step: new.finish_step,
        retry: new.retry,
        parameters: new.parameters.clone(),
        checkpoint: None,
        progress: None,
        result: None,
        result_url: None,
        error: None,
        memo: new.memo.clone(),
        correlation_id: new.correlation_id.clone(),
        trace_context: new.trace_context.clone(),
        artifact_expires_at: None,
        artifact_state: None,
    };

    Ok(Transition {
        after,
        archived: None,
        event: Some(EventKind::Submitted),
    })
}
