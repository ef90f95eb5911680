//! The executor: runs one handler from its start to its report, whatever the handler does.

mod limits;

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use longhaul_domain::{
    Lease, TaskRecord,
    contract::store::{AttemptEnd, AttemptReport, Failure},
    event::EventKind,
};
use longhaul_engine::commands::finish::EndedAttempt;
use longhaul_sdk::{AttemptContext, AttemptServices, Hook, StopReason, retry};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::{
    attempt::RunningAttempt,
    hooks,
    in_flight::{InFlight, Taken},
    node::Node,
};

/// Starts the handler of a claimed task.
pub(crate) fn start(node: &Arc<Node>, task: TaskRecord, taken: Taken) {
    let Some(handler) = node.client.registry.handler(&task.task_type) else {
        // Only registered types are claimed. Should the store return another one, a node that knows
        // the type may run it.
        return hand_back(node, &task, taken);
    };

    node.engine().publish_event(&task, EventKind::Started);
    let attempt = Arc::new(RunningAttempt::new(node, task, taken, handler));
    let run = execute(Arc::clone(node), Arc::clone(&attempt));
    let run = run.instrument(attempt.span.clone());
    node.attempts.spawn(attempt, run);
}

/// Hands back a task that no handler has begun.
pub(crate) fn hand_back(node: &Node, task: &TaskRecord, taken: Taken) {
    let report = AttemptReport {
        lease: taken.lease,
        end: AttemptEnd::HandedBack,
    };

    node.in_flight()
        .add_report(EndedAttempt::new(task, taken.info, report));
    // After the report is added: the loops that wake up find the slot free and the report waiting.
    node.wakeups.notify_slot();
    node.wakeups.notify_report();
}

/// Runs the handler, stores what it has written, and reports its end.
async fn execute(node: Arc<Node>, attempt: Arc<RunningAttempt>) {
    let info = Arc::clone(&attempt.info);
    hooks::call(&node, Hook::Running, &*attempt.handler, info);

    let HandlerResult { end, thread } = run_handler(&node, &attempt).await;
    attempt.close();
    let end = match (attempt.stop_reason(), end) {
        // A handler that takes every stop for a cancel must not end its task because of a deploy.
        (Some(StopReason::Drain), AttemptEnd::Cancelled) => AttemptEnd::HandedBack,
        (_, end) => end,
    };

    // The writes come before the report, because the store refuses writes of an ended attempt. The
    // removal comes before the reason is read, because no stop can change the reason after it.
    write_remaining(&node, &attempt, &end).await;
    node.attempts.remove(&attempt);

    match attempt.stop_reason() {
        None | Some(StopReason::Drain) => report(&node, &attempt, end, thread),
        // Another attempt has taken over. There is nothing to report.
        Some(StopReason::Lost) => release(&node, &attempt, thread),
        // The cancel has ended the task in the store already.
        Some(StopReason::Cancelled) => {
            release(&node, &attempt, thread);
            if attempt.has_output() {
                end_output(&node, &attempt.lease).await;
            }
            hooks::call_if_cancelled(&node, &attempt.lease, &attempt.info).await;
        }
    }
}

/// What came of a handler.
struct HandlerResult {
    end: AttemptEnd,
    /// The thread of a blocking handler that still runs.
    thread: Option<HandlerThread>,
}

/// The thread of a blocking handler.
type HandlerThread = JoinHandle<Option<AttemptEnd>>;

/// Runs the handler until it ends, panics, times out, or does not stop when asked to.
async fn run_handler(node: &Arc<Node>, attempt: &Arc<RunningAttempt>) -> HandlerResult {
    // A handler may also panic while it is dropped, which happens in here.
    let result = AssertUnwindSafe(run_until_stopped(node, attempt)).catch_unwind();
    result.await.unwrap_or_else(|panic| HandlerResult {
        end: panicked(&attempt.task, &*panic),
        thread: None,
    })
}

async fn run_until_stopped(node: &Node, attempt: &Arc<RunningAttempt>) -> HandlerResult {
    let handler = Arc::clone(&attempt.handler);
    let services: Arc<dyn AttemptServices> = Arc::<RunningAttempt>::clone(attempt);
    let context = AttemptContext::new(services);
    let run = async move { handler.run(context).await };

    let mut thread = None;
    let run = async {
        if attempt.settings().blocking {
            run_on_thread(run, &mut thread).await
        } else {
            run.await
        }
    };

    // The handler is dropped when another branch ends first. In this order: a result that is ready
    // together with the timeout is not thrown away.
    let end = tokio::select! {
        biased;
        end = run => end,
        end = attempt_timeout(&attempt.task) => end,
        () = grace_is_over(node, attempt) => AttemptEnd::HandedBack,
    };

    HandlerResult {
        end,
        thread: thread.filter(|thread| !thread.is_finished()),
    }
}

/// Runs the handler on a thread that may block. If this future is dropped, `thread` has the thread,
/// and the handler is dropped at its next await.
async fn run_on_thread(
    run: impl Future<Output = AttemptEnd> + Send + 'static,
    thread: &mut Option<HandlerThread>,
) -> AttemptEnd {
    let runtime = tokio::runtime::Handle::current();
    let dropped = CancellationToken::new();
    let _guard = dropped.clone().drop_guard();

    // A thread of its own, because the handler blocks it. The token ends its handler with this
    // future.
    let on_thread = move || runtime.block_on(dropped.run_until_cancelled_owned(run));
    let thread = thread.insert(tokio::task::spawn_blocking(on_thread));
    match thread.await {
        Ok(Some(end)) => end,
        Ok(None) => std::future::pending().await,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

/// The end of an attempt that takes longer than its timeout.
async fn attempt_timeout(task: &TaskRecord) -> AttemptEnd {
    let Some(timeout_ms) = task.timeout_ms else {
        return std::future::pending().await;
    };

    tokio::time::sleep(Duration::from_millis(timeout_ms)).await;
    let message = format!("the attempt took longer than its timeout of {timeout_ms} ms");
    failed(task, "timeout", message)
}

/// Returns when the handler was asked to stop and has had its time to do so.
async fn grace_is_over(node: &Node, attempt: &RunningAttempt) {
    attempt.stopped().await;
    match attempt.stop_reason() {
        // A shutdown decides itself when the time is over.
        Some(StopReason::Drain) => node.shutdown.dropping.cancelled().await,
        Some(StopReason::Cancelled | StopReason::Lost) | None => {
            tokio::time::sleep(attempt.settings().stop_grace).await;
            tracing::warn!("handler did not stop when asked to; it is dropped");
        }
    }
}

fn panicked(task: &TaskRecord, panic: &(dyn Any + Send)) -> AttemptEnd {
    let message = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(message), _) => (*message).to_owned(),
        (None, Some(message)) => message.clone(),
        (None, None) => "the handler panicked".to_owned(),
    };

    failed(task, "panic", message)
}

fn failed(task: &TaskRecord, class: &str, message: String) -> AttemptEnd {
    let failure = Failure {
        class: class.to_owned(),
        message,
        detail: None,
    };
    retry(task, failure)
}

/// Stores what the handler has written and the store does not have yet. The report comes after it.
async fn write_remaining(node: &Node, attempt: &RunningAttempt, end: &AttemptEnd) {
    limits::settle(node, attempt, end).await;

    let may_continue = matches!(attempt.stop_reason(), None | Some(StopReason::Drain));
    if may_continue && has_next_attempt(end) {
        // The next attempt starts from this checkpoint.
        if let Err(stop) = attempt.save_checkpoint().await {
            tracing::debug!(
                ?stop,
                "last checkpoint not saved; the next attempt starts from an earlier one"
            );
        }
    }

    if attempt.has_logs() {
        node.logs.write(node.engine()).await;
    }
    node.progress.close(node.engine(), &attempt.lease).await;
}

/// Whether the task runs again after this end.
const fn has_next_attempt(end: &AttemptEnd) -> bool {
    match end {
        AttemptEnd::Snoozed { .. } | AttemptEnd::HandedBack => true,
        AttemptEnd::Failed { retry_in_ms, .. } => retry_in_ms.is_some(),
        AttemptEnd::Completed { .. } | AttemptEnd::Cancelled => false,
    }
}

/// Gives the end to the reporter and frees the slot.
fn report(
    node: &Arc<Node>,
    attempt: &RunningAttempt,
    end: AttemptEnd,
    thread: Option<HandlerThread>,
) {
    let ended = attempt.with_end(end);
    free_slot(node, attempt, thread, |in_flight| {
        in_flight.add_report(ended);
    });
    node.wakeups.notify_report();
}

/// Frees the slot of an attempt that the store no longer counts.
fn release(node: &Arc<Node>, attempt: &RunningAttempt, thread: Option<HandlerThread>) {
    node.engine().forget_progress(&attempt.lease);
    free_slot(node, attempt, thread, |in_flight| {
        in_flight.drop_lease(&attempt.lease);
    });
}

/// Ends the attempt in the in-flight set, which frees its slot unless its thread still runs.
fn free_slot(
    node: &Arc<Node>,
    attempt: &RunningAttempt,
    thread: Option<HandlerThread>,
    end_attempt: impl FnOnce(&mut InFlight),
) {
    // Under one lock: the slot of a thread that still runs must not be free in between.
    let mut in_flight = node.in_flight();
    end_attempt(&mut in_flight);
    occupy_until_thread_ends(node, attempt, thread, &mut in_flight);
    drop(in_flight);

    // The loops that wake up take the lock.
    node.wakeups.notify_slot();
}

/// A thread occupies a slot as long as it runs. Otherwise each retry would start one more thread
/// beside it, beyond the limits of its type.
fn occupy_until_thread_ends(
    node: &Arc<Node>,
    attempt: &RunningAttempt,
    thread: Option<HandlerThread>,
    in_flight: &mut InFlight,
) {
    let Some(mut thread) = thread else { return };
    let info = Arc::clone(&attempt.info);
    in_flight.orphan_slot(&info.queue, &info.task_type);

    let node = Arc::clone(node);
    let grace = attempt.settings().stop_grace;
    let until_it_ends = async move {
        if tokio::time::timeout(grace, &mut thread).await.is_err() {
            tracing::warn!(
                "blocking handler still runs after its attempt has ended; it occupies its slot"
            );
            // Its end is not reported: the attempt was.
            let _ = thread.await;
        }

        node.in_flight()
            .release_orphaned_slot(&info.queue, &info.task_type);
        node.wakeups.notify_slot();
    };

    // No thread can be stopped from outside, so something has to wait for it.
    tokio::spawn(until_it_ends.instrument(attempt.span.clone()));
}

/// Ends the output stream of a task that has ended. A retry opens it again.
pub(crate) async fn end_output(node: &Node, lease: &Lease) {
    let streams = &node.client.streams;
    if let Err(error) = streams.end(lease.task_id, lease.attempt).await {
        tracing::warn!(%error, task_id = %lease.task_id.0, "output stream could not be ended");
    }
}

#[cfg(test)]
mod tests {
    use longhaul_sdk::{Job, Registry, TypeSettings};

    use super::*;
    use crate::test_node;

    #[tokio::test(start_paused = true)]
    async fn a_result_that_is_ready_together_with_the_timeout_counts() {
        const TIMEOUT_MS: u64 = 50;
        let mut registry = Registry::default();
        let run = |_: u64, _: Job| async {
            tokio::time::sleep(Duration::from_millis(TIMEOUT_MS)).await;
            Ok(())
        };
        registry.register_fn("t", TypeSettings::new(), run).unwrap();
        let node = test_node::unregistered(registry);

        for attempt in 1..=20 {
            let mut task = test_node::claimed_task(attempt);
            task.timeout_ms = Some(TIMEOUT_MS);
            let taken = node.in_flight().take(&task).unwrap();
            let handler = node.client.registry.handler("t").unwrap();
            let attempt = Arc::new(RunningAttempt::new(&node, task, taken, handler));

            let HandlerResult { end, .. } = run_handler(&node, &attempt).await;
            assert!(matches!(end, AttemptEnd::Completed { .. }), "{end:?}");
        }
    }
}
