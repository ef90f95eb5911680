//! Calls the hooks of task types, once the store has what they announce.

use std::sync::Arc;

use futures::future::BoxFuture;
use longhaul_domain::{
    AttemptEndKind, Lease, Status, StoreError, TaskInfo,
    contract::store::{Access, AttemptEnd, Verdict},
    event::EventKind,
};
use longhaul_engine::{commands::finish::EndedAttempt, metrics::Listener};
use longhaul_sdk::{Handler, Hook};

use crate::node::Node;

/// Calls a hook for a task that runs here.
pub(crate) fn call(node: &Node, hook: Hook, handler: &dyn Handler, info: Arc<TaskInfo>) {
    count(node, &hook);
    node.client.hooks.call(handler.hook(hook, info));
}

fn count(node: &Node, hook: &Hook) {
    let event = match hook {
        Hook::Queued => EventKind::Submitted,
        Hook::Running => EventKind::Started,
        Hook::Completed => EventKind::Completed,
        Hook::Failed { .. } => EventKind::Failed,
        Hook::Cancelled => EventKind::Cancelled,
    };

    node.engine().metrics().processed(Listener::Hooks, event);
}

/// Calls the hooks for reports that the store has answered.
pub(crate) async fn call_for_ends(node: &Node, reports: &[EndedAttempt], verdicts: &[Verdict]) {
    let mut calls = Vec::with_capacity(reports.len());
    for (ended, verdict) in reports.iter().zip(verdicts) {
        calls.extend(hook_for_end(node, ended, *verdict).await);
    }

    node.client.hooks.call_all(calls);
}

async fn hook_for_end(
    node: &Node,
    ended: &EndedAttempt,
    verdict: Verdict,
) -> Option<BoxFuture<'static, ()>> {
    match verdict {
        // A repetition is a report of this node whose first answer was lost.
        Verdict::Applied(status) | Verdict::Repeated(status) => {
            let handler = node.client.registry.handler(&ended.info.task_type)?;
            let hook = hook_of(&ended.report.end, status)?;

            count(node, &hook);
            Some(handler.hook(hook, Arc::clone(&ended.info)))
        }
        Verdict::Stale(Status::Cancelled) => {
            call_if_cancelled(node, &ended.report.lease, &ended.info).await;
            None
        }
        Verdict::Stale(_) | Verdict::Missing => None,
    }
}

/// Calls the hook of a cancelled task, if it was this attempt that was cancelled. It may also have
/// been a later attempt, or the task between two attempts.
pub(crate) async fn call_if_cancelled(node: &Node, lease: &Lease, info: &Arc<TaskInfo>) {
    let is_cancelled = match was_cancelled(node, lease).await {
        Ok(is_cancelled) => is_cancelled,
        Err(error) => {
            tracing::debug!(
                %error,
                task_id = %lease.task_id.0,
                "attempts could not be read; the hook on_cancelled is skipped"
            );
            return;
        }
    };

    if is_cancelled && let Some(handler) = node.client.registry.handler(&info.task_type) {
        call(node, Hook::Cancelled, &*handler, Arc::clone(info));
    }
}

async fn was_cancelled(node: &Node, lease: &Lease) -> Result<bool, StoreError> {
    let before = lease.attempt.saturating_sub(1);
    let reads = node.engine().reads();
    let attempts = reads
        .list_attempts(&Access::All, lease.task_id, before, 1)
        .await?;

    Ok(attempts
        .iter()
        .any(|row| row.attempt == lease.attempt && row.end == AttemptEndKind::Cancelled))
}

/// The hook for the end of an attempt that left its task in this status.
fn hook_of(end: &AttemptEnd, status: Status) -> Option<Hook> {
    match (end, status) {
        (_, Status::Completed | Status::CompletedWithErrors) => Some(Hook::Completed),
        (_, Status::Cancelled) => Some(Hook::Cancelled),
        (AttemptEnd::Failed { failure, .. }, _) => Some(Hook::Failed {
            error: failure.message.clone(),
            is_last: status.is_ended(),
        }),
        (AttemptEnd::Completed { .. }, Status::Failed) => Some(Hook::Failed {
            error: "none of the children completed".to_owned(),
            is_last: true,
        }),
        (
            AttemptEnd::Completed { .. }
            | AttemptEnd::Snoozed { .. }
            | AttemptEnd::HandedBack
            | AttemptEnd::Cancelled,
            _,
        ) => None,
    }
}
