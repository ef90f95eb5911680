//! The hooks of a type, called when the store has what they tell of. They run beside the task: neither their waits nor
//! their panics are the task's.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::{FutureExt as _, future::BoxFuture};
use longhaul_domain::{
    Attempt, AttemptOutcome, Lease, Status,
    contract::store::{Access, Outcome as Ending, Verdict},
    event::EventKind,
};
use longhaul_engine::{TaskInfo, commands::finish::Ended, metrics::Listener};

use super::Inner;
use crate::registry::{Handler, Hook};

/// Calls a hook from the task that it is about. Most have nothing to do and are over at once; one that waits goes on by
/// itself.
pub(super) fn call(inner: &Inner, hook: Hook, handler: &dyn Handler, info: Arc<TaskInfo>) {
    inner
        .engine()
        .metrics
        .processed(Listener::Hooks, event_of(&hook));
    let mut running = AssertUnwindSafe(handler.hook(hook, info)).catch_unwind();
    if (&mut running).now_or_never().is_none() {
        inner.services.hooks.spawn(running);
    }
}

const fn event_of(hook: &Hook) -> EventKind {
    match hook {
        Hook::Queued => EventKind::Submitted,
        Hook::Running => EventKind::Started,
        Hook::Completed => EventKind::Completed,
        Hook::Failed(..) => EventKind::Failed,
        Hook::Cancelled => EventKind::Cancelled,
    }
}

/// The store has answered reports.
pub(super) async fn call_for_ends(inner: &Inner, reports: &[Ended], verdicts: &[Verdict]) {
    let mut calls = Vec::with_capacity(reports.len());
    for (ended, verdict) in reports.iter().zip(verdicts) {
        calls.extend(call_of_end(inner, ended, *verdict).await);
    }
    inner.services.call_hooks(calls);
}

async fn call_of_end(
    inner: &Inner,
    ended: &Ended,
    verdict: Verdict,
) -> Option<BoxFuture<'static, ()>> {
    let handler = inner.services.registry.handler(&ended.info.task_type)?;
    let lease = ended.report.lease;
    match verdict {
        // A repetition is a report of ours whose first answer was lost.
        Verdict::Applied(status) | Verdict::Repeated(status) => {
            let hook = hook_of(&ended.report.outcome, status)?;
            inner
                .engine()
                .metrics
                .processed(Listener::Hooks, event_of(&hook));
            Some(handler.hook(hook, Arc::clone(&ended.info)))
        }
        Verdict::Stale(Status::Cancelled) => {
            call_if_cancelled(inner, &lease, &ended.info).await;
            None
        }
        Verdict::Stale(_) | Verdict::Missing => None,
    }
}

/// The task is cancelled. Whether it was in this attempt, in a later one that took over unnoticed, or after it, the store
/// knows.
pub(super) async fn call_if_cancelled(inner: &Inner, lease: &Lease, info: &Arc<TaskInfo>) {
    let before = lease.attempt.saturating_sub(1);
    match inner
        .engine()
        .store
        .list_attempts(&Access::All, lease.task_id, before, 1)
        .await
    {
        Ok(found) => {
            let is_cancelled = |it: &Attempt| {
                it.attempt == lease.attempt && it.outcome == AttemptOutcome::Cancelled
            };
            if found.iter().any(is_cancelled)
                && let Some(handler) = inner.services.registry.handler(&info.task_type)
            {
                call(inner, Hook::Cancelled, &*handler, Arc::clone(info));
            }
        }
        Err(error) => {
            tracing::debug!(%error, "a hook was not called: the store does not say whether it should be")
        }
    }
}

/// What an end means for the hooks, once it has brought the task to this status.
fn hook_of(ending: &Ending, status: Status) -> Option<Hook> {
    match (ending, status) {
        (_, Status::Completed | Status::CompletedWithErrors) => Some(Hook::Completed),
        (_, Status::Cancelled) => Some(Hook::Cancelled),
        (Ending::Failed { failure, .. }, _) => {
            Some(Hook::Failed(failure.message.clone(), status.is_ended()))
        }
        (Ending::Completed { .. }, Status::Failed) => Some(Hook::Failed(
            "none of the children completed".to_owned(),
            true,
        )),
        (
            Ending::Completed { .. }
            | Ending::Snoozed { .. }
            | Ending::HandedBack
            | Ending::Cancelled,
            _,
        ) => None,
    }
}
