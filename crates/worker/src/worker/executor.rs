//! The executor: one handler, from its start to its report, whatever it does.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, atomic::Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use longhaul_domain::{
    Lease, Task,
    contract::store::{Failure, Outcome as Ending, Report},
    event::EventKind,
};
use longhaul_engine::{
    TaskInfo,
    commands::finish::Ended,
    desk::{Desk, StopReason},
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::{Inner, hooks};
use crate::{
    registry::{Hook, retry},
    run::Run,
    state,
};

/// What a provider's refusal is counted under when the attempt had no permit.
const NO_KEY: &str = "none";

/// Starts the handler of a claimed task.
pub(super) fn start(inner: &Arc<Inner>, task: Task, lease: Lease, info: Arc<TaskInfo>) {
    let inner = Arc::clone(inner);
    let Some(handler) = inner.services.registry.handler(&task.task_type) else {
        // Only registered types are claimed; should the store answer otherwise, another node may know the type.
        return hand_back(&inner, &task, lease, info);
    };
    inner.engine().tell(&task, EventKind::Started);
    let run = Arc::new(Run::new(
        task,
        lease,
        info,
        Arc::clone(&inner.services),
        handler,
    ));
    inner.runs().insert(run.task.id, Arc::clone(&run));
    let handlers = inner.handlers.clone();
    let span = run.span.clone();
    let running = handlers.spawn(execute(inner, Arc::clone(&run)).instrument(span));
    // Set by nobody else.
    let _ = run.abort.set(running.abort_handle());
}

async fn execute(inner: Arc<Inner>, run: Arc<Run>) {
    hooks::call(&inner, Hook::Running, &*run.handler, Arc::clone(&run.info));
    // A handler may also panic where it is dropped.
    let worked = AssertUnwindSafe(work(&inner, &run)).catch_unwind().await;
    let mut ending = worked.unwrap_or_else(|panic| panicked(&run, &*panic));
    run.close();
    if run.stop_reason() == Some(StopReason::Drain) && ending == Ending::Cancelled {
        // A handler that takes every stop for a cancel must not end its task because of a deploy.
        ending = Ending::HandedBack;
    }
    settle_limits(&run, &ending).await;
    if goes_on(&ending) && matches!(run.stop_reason(), None | Some(StopReason::Drain)) {
        // What the next attempt starts from.
        state::flush(&run).await;
    }
    if run.writes_logs.load(Ordering::Relaxed) {
        inner.services.scribe.write(&*inner.engine().store).await;
    }
    inner
        .services
        .progress
        .close(inner.engine(), &run.lease)
        .await;
    {
        let mut runs = inner.runs();
        if runs
            .get(&run.task.id)
            .is_some_and(|current| current.lease == run.lease)
        {
            runs.remove(&run.task.id);
        }
    }
    match run.stop_reason() {
        Some(StopReason::Cancelled) => {
            leave(&inner, &run);
            if run.writes_output.load(Ordering::Relaxed) {
                end_output(&inner, &run.lease).await;
            }
            hooks::call_if_cancelled(&inner, &run.lease, &run.info).await;
        }
        Some(StopReason::Lost) => leave(&inner, &run),
        Some(StopReason::Drain) | None => end(&inner, &run, ending),
    }
}

/// Whether the task is to be run again after this end.
const fn goes_on(ending: &Ending) -> bool {
    match ending {
        Ending::Snoozed { .. }
        | Ending::HandedBack
        | Ending::Failed {
            retry_in_ms: Some(_),
            ..
        } => true,
        Ending::Completed { .. }
        | Ending::Failed {
            retry_in_ms: None, ..
        }
        | Ending::Cancelled => false,
    }
}

/// The store has gone on without this attempt; there is nobody to tell. The slot is free.
fn leave(inner: &Arc<Inner>, run: &Run) {
    inner.engine().forget_progress(&run.lease);
    let mut desk = inner.desk();
    desk.drop_lease(&run.lease);
    keep_slot_of_thread(inner, run, &mut desk);
    drop(desk);
    inner.room_freed();
}

/// As long as a thread that blocks goes on it has its slot: else each retry would start one more beside it, whatever the
/// type's limits say.
fn keep_slot_of_thread(inner: &Arc<Inner>, run: &Run, desk: &mut Desk) {
    let Some(mut thread) = run.take_left_behind() else {
        return;
    };
    desk.keep_slot(&run.info.queue, &run.info.task_type);
    let (inner, info, grace) = (
        Arc::clone(inner),
        Arc::clone(&run.info),
        run.settings().stop_grace,
    );
    let until_it_ends = async move {
        // However it ends, nobody hears of it.
        if tokio::time::timeout(grace, &mut thread).await.is_err() {
            tracing::warn!("a blocking handler goes on after its attempt and keeps its slot");
            let _ = thread.await;
        }
        inner.desk().release_kept_slot(&info.queue, &info.task_type);
        inner.room_freed();
    };
    tokio::spawn(until_it_ends.instrument(run.span.clone()));
}

/// The task has ended, and so has its output stream. A later attempt takes that back.
pub(super) async fn end_output(inner: &Inner, lease: &Lease) {
    let ended = inner
        .services
        .streams
        .end(lease.task_id, lease.attempt)
        .await;
    ended.unwrap_or_else(|error| tracing::warn!(%error, "the output stream could not be ended"));
}

/// Gives a task back that no handler has begun.
pub(super) fn hand_back(inner: &Inner, task: &Task, lease: Lease, info: Arc<TaskInfo>) {
    inner.desk().end(Ended::new(
        task,
        info,
        Report {
            lease,
            outcome: Ending::HandedBack,
        },
    ));
    inner.room_freed();
    inner.ended.notify_one();
}

fn end(inner: &Arc<Inner>, run: &Run, outcome: Ending) {
    let mut ended = Ended::new(
        &run.task,
        Arc::clone(&run.info),
        Report {
            lease: run.lease,
            outcome,
        },
    );
    ended.ran = Some(run.started.elapsed());
    ended.has_output = run.writes_output.load(Ordering::Relaxed);
    let mut desk = inner.desk();
    desk.end(ended);
    keep_slot_of_thread(inner, run, &mut desk);
    drop(desk);
    inner.room_freed();
    inner.ended.notify_one();
}

/// Runs the handler until it ends, times out, or does not stop when asked to.
async fn work(inner: &Inner, run: &Arc<Run>) -> Ending {
    let future = run.handler.run(Arc::clone(run));
    let timeout = run.task.timeout_ms.map(Duration::from_millis);
    let mut thread = None;
    let body = async {
        match run.settings().blocking {
            false => future.await,
            // The future is polled on a thread that may block.
            true => {
                let runtime = tokio::runtime::Handle::current();
                // The thread does not go with whoever waits for it: the guard has the future dropped at its next await.
                let dropped = CancellationToken::new();
                let _guard = dropped.clone().drop_guard();
                let on_thread = move || runtime.block_on(dropped.run_until_cancelled_owned(future));
                match thread.insert(tokio::task::spawn_blocking(on_thread)).await {
                    Ok(Some(ended)) => ended,
                    Ok(None) => std::future::pending().await,
                    Err(panic) => std::panic::resume_unwind(panic.into_panic()),
                }
            }
        }
    };
    let ending = tokio::select! {
        ended = body => ended,
        () = past(timeout) => {
            let message = format!("the attempt took longer than its timeout of {} ms", run.task.timeout_ms.unwrap_or(0));
            failed(run, "timeout", message)
        }
        () = gave_no_way(inner, run) => Ending::HandedBack,
    };
    if let Some(thread) = thread.filter(|thread| !thread.is_finished()) {
        run.leave_behind(thread);
    }
    ending
}

async fn past(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}

/// Returns when the handler was asked to stop and has had its time.
async fn gave_no_way(inner: &Inner, run: &Run) {
    run.stopped().await;
    let grace = match run.stop_reason() {
        // A shutdown decides by itself when its time is over.
        Some(StopReason::Drain) => {
            while !inner.dropping.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            return;
        }
        Some(StopReason::Cancelled | StopReason::Lost) | None => run.settings().stop_grace,
    };
    tokio::time::sleep(grace).await;
    tracing::warn!("a handler did not stop when asked to and is dropped");
}

fn panicked(run: &Run, panic: &(dyn std::any::Any + Send)) -> Ending {
    let message = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let message = message.or_else(|| panic.downcast_ref::<String>().cloned());
    failed(
        run,
        "panic",
        message.unwrap_or_else(|| "the handler panicked".to_owned()),
    )
}

/// A failure of the attempt, worth a retry as the policy says.
fn failed(run: &Run, class: &str, message: String) -> Ending {
    match retry(run, &message.clone().into(), None) {
        Ending::Failed { retry_in_ms, .. } => Ending::Failed {
            failure: Failure {
                class: class.to_owned(),
                message,
                detail: None,
            },
            retry_in_ms,
        },
        other @ (Ending::Completed { .. }
        | Ending::Snoozed { .. }
        | Ending::HandedBack
        | Ending::Cancelled) => other,
    }
}

/// A provider's refusal parks the limit that was used last, and a result shows that all are open. Any other end says
/// nothing: the call that a permit was for may not have been made.
async fn settle_limits(run: &Run, ending: &Ending) {
    let mut limits = run.take_limits();
    let limiter = &run.services.limiter;
    let told = match ending {
        Ending::Snoozed {
            reason: Some(reason),
            delay_ms,
        } if reason.class == "rate_limited" => match limits.pop() {
            Some(key) => {
                run.services.engine.metrics.throttled(&key);
                limiter.park(&key, *delay_ms).await
            }
            None => {
                run.services.engine.metrics.throttled(NO_KEY);
                Ok(())
            }
        },
        Ending::Completed { .. } => {
            futures::future::try_join_all(limits.iter().map(|key| limiter.release(key)))
                .await
                .map(drop)
        }
        Ending::Failed { .. } | Ending::Snoozed { .. } | Ending::HandedBack | Ending::Cancelled => {
            Ok(())
        }
    };
    told.unwrap_or_else(|error| tracing::warn!(%error, "the limiter could not be told"));
}
