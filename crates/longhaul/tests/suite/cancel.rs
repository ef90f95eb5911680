//! Cancelling: at once in the same process, within two seconds from another, and never with a
//! result.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use longhaul::{Context, Longhaul, Outcome, Status, Stop, Task, TaskId, TaskInfo, WorkerSettings};
use tokio::sync::Notify;

use crate::{Home, Place, fresh::Backend, open, trial, until};

pub(crate) fn trials(place: Place) -> Vec<Trial> {
    let mut trials = vec![
        trial(
            place,
            "cancel::a_running_handler_is_told",
            a_running_handler_is_told,
        ),
        trial(
            place,
            "cancel::a_deaf_handler_is_dropped",
            a_deaf_handler_is_dropped,
        ),
        trial(
            place,
            "cancel::a_waiting_task_never_runs",
            a_waiting_task_never_runs,
        ),
        trial(
            place,
            "cancel::a_task_that_does_not_run_is_told_once_by_its_canceller",
            who_does_not_run_is_told,
        ),
        trial(
            place,
            "cancel::what_is_not_cancellable_is_left_alone",
            what_is_not_cancellable_is_left_alone,
        ),
    ];

    if place != Place::Alone(Backend::Sqlite) {
        trials.push(trial(
            place,
            "cancel::a_cancel_of_another_process_arrives_within_two_seconds",
            a_cancel_of_another_process_arrives,
        ));
    }

    trials
}

#[derive(Default, Clone)]
struct Signs {
    started: Arc<Notify>,
    stopped: Arc<Notify>,
    hooked: Arc<Notify>,
}

/// Runs until it should stop.
struct Patient(Signs);

impl Task for Patient {
    const TYPE: &'static str = "patient";
    type Params = ();
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        self.0.started.notify_one();
        ctx.cancelled().await;
        self.0.stopped.notify_one();
        Ok(())
    }

    async fn on_cancelled(&self, _task: &TaskInfo) {
        self.0.hooked.notify_one();
    }
}

/// Ignores every stop.
struct Deaf(Signs);

impl Task for Deaf {
    const TYPE: &'static str = "deaf";
    const CANCELLABLE: bool = true;
    type Params = ();
    type Output = ();

    async fn run(&self, _ctx: Context<Self>) -> Outcome<()> {
        struct OnDrop(Arc<Notify>);
        impl Drop for OnDrop {
            fn drop(&mut self) {
                self.0.notify_one();
            }
        }

        let _on_drop = OnDrop(Arc::clone(&self.0.stopped));
        self.0.started.notify_one();
        std::future::pending().await
    }

    fn settings(&self) -> longhaul::TypeSettings {
        longhaul::TypeSettings::new().stop_grace(Duration::from_millis(50))
    }
}

struct Stubborn(Signs);

impl Task for Stubborn {
    const TYPE: &'static str = "stubborn";
    const CANCELLABLE: bool = false;
    type Params = ();
    type Output = ();

    async fn run(&self, _ctx: Context<Self>) -> Outcome<()> {
        self.0.started.notify_one();
        self.0.stopped.notified().await;
        Ok(())
    }
}

async fn a_running_handler_is_told(database: Home) {
    let signs = Signs::default();
    let longhaul = open(&database)
        .await
        .register(Patient(signs.clone()))
        .start()
        .await
        .unwrap();

    let handle = longhaul.submit::<Patient>(()).await.unwrap();
    signs.started.notified().await;
    assert_eq!(
        longhaul.cancel(handle.id()).await.unwrap(),
        Status::Cancelled
    );
    signs.stopped.notified().await;
    signs.hooked.notified().await;
    let task = handle.task().await.unwrap();

    assert_eq!((task.status, task.result), (Status::Cancelled, None));
    assert_eq!(
        handle.cancel().await.unwrap(),
        Status::Cancelled,
        "a second cancel succeeds too"
    );
    longhaul.stop().await;
}

async fn a_deaf_handler_is_dropped(database: Home) {
    let signs = Signs::default();
    let longhaul = open(&database)
        .await
        .register(Deaf(signs.clone()))
        .start()
        .await
        .unwrap();

    let handle = longhaul.submit::<Deaf>(()).await.unwrap();
    signs.started.notified().await;
    handle.cancel().await.unwrap();
    signs.stopped.notified().await;
    longhaul.stop().await;
}

async fn a_waiting_task_never_runs(database: Home) {
    let signs = Signs::default();
    let longhaul = open(&database)
        .await
        .register(Patient(signs.clone()))
        .start()
        .await
        .unwrap();

    let handle = longhaul
        .submit::<Patient>(())
        .delay(Duration::from_secs(3_600))
        .await
        .unwrap();

    assert_eq!(handle.cancel().await.unwrap(), Status::Cancelled);
    assert_eq!(handle.task().await.unwrap().attempt, 0);
    longhaul.stop().await;
}

const DAY: Duration = Duration::from_secs(86_400);

/// Fails, or waits for a child that is due tomorrow, and notes the calls of its hook.
#[derive(Default, Clone)]
struct Idle(Arc<Mutex<Vec<(TaskId, u32)>>>);

impl Task for Idle {
    const TYPE: &'static str = "idle";
    type Params = bool;
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        let is_parent = ctx.params;
        if !is_parent {
            return Err(Stop::retry_after("not yet", DAY));
        }
        ctx.submit::<Self>(false).delay(DAY).await?;
        Err(Stop::wait_for_children())
    }

    async fn on_cancelled(&self, task: &TaskInfo) {
        self.0.lock().unwrap().push((task.id, task.attempt));
    }
}

async fn who_does_not_run_is_told(database: Home) {
    let idle = Idle::default();
    let longhaul = open(&database)
        .await
        .register(idle.clone())
        .start()
        .await
        .unwrap();

    let queued = longhaul.submit::<Idle>(false).delay(DAY).await.unwrap();
    let retrying = longhaul.submit::<Idle>(false).await.unwrap();
    let waiting = longhaul.submit::<Idle>(true).await.unwrap();
    let mut cancelled = Vec::new();

    for (handle, status, attempt) in [
        (queued, Status::Queued, 0),
        (retrying, Status::Retrying, 1),
        (waiting, Status::Waiting, 1),
    ] {
        until(async || handle.status().await.unwrap() == status).await;
        // At once, and once more after that.
        let answers = futures::future::try_join_all((0..4).map(|_| handle.cancel()))
            .await
            .unwrap();
        assert_eq!(answers, [Status::Cancelled; 4]);
        assert_eq!(handle.cancel().await.unwrap(), Status::Cancelled);
        cancelled.push((handle.id(), attempt));
    }

    // A shutdown waits for hooks.
    longhaul.stop().await;
    let mut hooked = idle.0.lock().unwrap().clone();
    hooked.sort();

    // The child, which was made last, was cancelled with its parent.
    let (child, attempt) = hooked.pop().unwrap();
    assert!(
        cancelled.iter().all(|(id, _)| *id != child) && attempt == 0,
        "{child:?} of {cancelled:?}"
    );
    assert_eq!(hooked, cancelled);
}

async fn what_is_not_cancellable_is_left_alone(database: Home) {
    let signs = Signs::default();
    let longhaul = open(&database)
        .await
        .register(Stubborn(signs.clone()))
        .start()
        .await
        .unwrap();

    let handle = longhaul.submit::<Stubborn>(()).await.unwrap();
    signs.started.notified().await;
    let refused = longhaul.cancel(handle.id()).await.unwrap_err();
    assert_eq!(refused.code(), "wrong_state");
    assert_eq!(
        handle.cancel().await.unwrap_err().code(),
        "wrong_state",
        "the handle is no way around it"
    );

    signs.stopped.notify_one();
    handle.result().await.unwrap();
    longhaul.stop().await;
}

/// The heartbeat carries the cancel. Two seconds are the contract's limit, not a measure of speed.
async fn a_cancel_of_another_process_arrives(database: Home) {
    let signs = Signs::default();
    let settings = WorkerSettings {
        heartbeat: Duration::from_millis(200),
        ..WorkerSettings::default()
    };
    let worker = open(&database)
        .await
        .register(Patient(signs.clone()))
        .worker(settings)
        .start()
        .await
        .unwrap();

    let elsewhere: Longhaul = open(&database).await.without_worker().unwrap();
    let handle = elsewhere.submit::<Patient>(()).await.unwrap();
    signs.started.notified().await;
    let asked = Instant::now();
    elsewhere.cancel(handle.id()).await.unwrap();
    signs.stopped.notified().await;
    assert!(
        asked.elapsed() < Duration::from_secs(2),
        "{:?}",
        asked.elapsed()
    );

    elsewhere.stop().await;
    worker.stop().await;
}
