//! Hooks: after the change, for what became of the task, and waited for.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use longhaul_domain::{NodeId, contract::store::Leases};
use longhaul_testkit::reference::MemoryStore;
use tokio::sync::{Notify, Semaphore};

use super::{Echo, on, store};
use crate::{
    Children, Context, MaintenanceSettings, Outcome, Received, Status, Stop, Subscription, Task,
    TaskInfo, WorkerSettings, testing::TestLonghaul,
};

/// Far more than any case takes.
const DEADLINE: Duration = Duration::from_secs(60);

/// A hook with the attempt, and what the store said of the task meanwhile.
type Call = (&'static str, u32, Status);
type End = fn() -> Outcome<()>;

/// Every hook that was called.
#[derive(Clone)]
struct Calls {
    store: Arc<MemoryStore>,
    made: Arc<Mutex<Vec<Call>>>,
    one_more: Arc<Semaphore>,
}

impl Calls {
    fn new() -> Self {
        Self {
            store: Arc::new(store()),
            made: Arc::default(),
            one_more: Arc::new(Semaphore::new(0)),
        }
    }

    fn note(&self, hook: &'static str, task: &TaskInfo) {
        let status = self.store.look(|tasks, _| tasks[&task.id].status);
        self.made().push((hook, task.attempt, status));
        self.one_more.add_permits(1);
    }

    fn made(&self) -> MutexGuard<'_, Vec<Call>> {
        self.made.lock().unwrap()
    }

    /// Waits until so many more were called.
    async fn called(&self, more: u32) {
        let called = self.one_more.acquire_many(more);
        tokio::time::timeout(DEADLINE, called)
            .await
            .expect("a hook was not called")
            .unwrap()
            .forget();
    }
}

/// Ends as it is told in its first attempt, then with a result; all its hooks are noted.
struct Hooked {
    calls: Calls,
    first: End,
}

impl Task for Hooked {
    const TYPE: &'static str = "hooked";
    type Params = ();
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        if ctx.attempt() == 1 {
            (self.first)()
        } else {
            Ok(())
        }
    }

    async fn on_running(&self, task: &TaskInfo) {
        self.calls.note("running", task);
    }

    async fn on_completed(&self, task: &TaskInfo) {
        self.calls.note("completed", task);
    }

    async fn on_failed(&self, task: &TaskInfo, _error: &str) {
        self.calls.note("failed", task);
    }

    async fn on_given_up(&self, task: &TaskInfo, error: &str) {
        assert_eq!(error, "no");
        self.calls.note("given up", task);
    }

    async fn on_cancelled(&self, task: &TaskInfo) {
        self.calls.note("cancelled", task);
    }
}

/// The hooks of one attempt that ends so.
async fn calls_of(first: End) -> Vec<Call> {
    calls_of_at_most(first, 5).await
}

/// The same of a task that may have so many.
async fn calls_of_at_most(first: End, attempts: u32) -> Vec<Call> {
    let calls = Calls::new();
    let hooked = Hooked {
        calls: calls.clone(),
        first,
    };
    let longhaul = on(&calls.store).register(hooked).start().await.unwrap();

    longhaul
        .submit::<Hooked>(())
        .max_attempts(attempts)
        .await
        .unwrap();
    calls.called(2).await;
    longhaul.stop().await;

    calls.made().clone()
}

#[tokio::test]
async fn a_start_hook_comes_while_the_task_runs_and_an_end_hook_after_the_store_has_the_end() {
    let ends: [(End, &'static str, Status); 2] = [
        (|| Ok(()), "completed", Status::Completed),
        (|| Err(Stop::cancelled()), "cancelled", Status::Cancelled),
    ];
    for (first, hook, status) in ends {
        assert_eq!(
            calls_of(first).await,
            [("running", 1, Status::Running), (hook, 1, status)]
        );
    }
}

#[tokio::test]
async fn a_last_failure_is_told_as_a_failure_and_as_the_last() {
    let ends: [(End, Status); 2] = [
        (|| Err(Stop::fatal("no")), Status::Failed),
        (|| Err(Stop::retryable("no")), Status::DeadLetter),
    ];
    for (first, status) in ends {
        let calls = calls_of_at_most(first, 1).await;
        assert_eq!(
            calls,
            [
                ("running", 1, Status::Running),
                ("failed", 1, status),
                ("given up", 1, status)
            ]
        );
    }
}

#[tokio::test]
async fn an_attempt_that_will_be_retried_is_told_as_failed() {
    let calls = calls_of(|| Err(Stop::retry_after("not yet", Duration::from_secs(3_600)))).await;
    assert_eq!(
        calls,
        [
            ("running", 1, Status::Running),
            ("failed", 1, Status::Retrying)
        ]
    );
}

/// Waits in its first attempt until it should stop.
struct Held(Calls, Arc<Notify>);

impl Task for Held {
    const TYPE: &'static str = "held";
    type Params = ();
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        if ctx.attempt() == 1 {
            self.1.notify_one();
            ctx.cancelled().await;
            return Err(Stop::cancelled());
        }
        Ok(())
    }

    async fn on_completed(&self, task: &TaskInfo) {
        self.0.note("completed", task);
    }

    async fn on_cancelled(&self, task: &TaskInfo) {
        self.0.note("cancelled", task);
    }
}

#[tokio::test]
async fn a_lost_attempt_has_no_end_hook() {
    let calls = Calls::new();
    let started = Arc::new(Notify::new());
    let worker = WorkerSettings {
        heartbeat: Duration::from_millis(10),
        ..WorkerSettings::default()
    };
    let maintenance = MaintenanceSettings {
        rescue_every: Duration::from_millis(10),
        ..MaintenanceSettings::default()
    };

    let held = Held(calls.clone(), Arc::clone(&started));
    let longhaul = on(&calls.store)
        .register(held)
        .worker(worker)
        .maintenance(maintenance)
        .start()
        .await
        .unwrap();

    longhaul.submit::<Held>(()).await.unwrap();
    started.notified().await;
    calls
        .store
        .declare_others_dead(NodeId(uuid::Uuid::nil()))
        .await
        .unwrap();
    calls.called(1).await;
    longhaul.stop().await;

    assert_eq!(*calls.made(), [("completed", 2, Status::Completed)]);
}

#[tokio::test]
async fn a_running_task_is_told_of_its_cancel_once_whoever_cancels_it() {
    for is_elsewhere in [false, true] {
        let calls = Calls::new();
        let started = Arc::new(Notify::new());
        let builder = || on(&calls.store).register(Held(calls.clone(), Arc::clone(&started)));
        let worker = WorkerSettings {
            heartbeat: Duration::from_millis(10),
            ..WorkerSettings::default()
        };
        let longhaul = builder().worker(worker).start().await.unwrap();
        let elsewhere = builder().without_worker().unwrap();

        let id = longhaul.submit::<Held>(()).await.unwrap().id();
        started.notified().await;
        let canceller = if is_elsewhere { &elsewhere } else { &longhaul };
        assert_eq!(canceller.cancel(id).await.unwrap(), Status::Cancelled);
        calls.called(1).await;

        // What was called in another process has its turn before this one has stopped.
        longhaul.stop().await;
        assert_eq!(*calls.made(), [("cancelled", 1, Status::Cancelled)]);
    }
}

/// A parent that waits for its children, and a finish step.
struct Parent(Calls);

impl Task for Parent {
    const TYPE: &'static str = "parent";
    const FINISH_STEP: bool = true;
    type Params = ();
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        ctx.submit_all::<Echo>([1, 2]).await?;
        Ok(())
    }

    async fn finish(&self, _ctx: Context<Self>, _children: Children) -> Outcome<()> {
        Ok(())
    }

    async fn on_completed(&self, task: &TaskInfo) {
        self.0.note("completed", task);
    }
}

#[tokio::test]
async fn a_parent_that_waits_has_not_completed() {
    let calls = Calls::new();
    let longhaul = on(&calls.store)
        .register(Parent(calls.clone()))
        .register(Echo)
        .start()
        .await
        .unwrap();

    let handle = longhaul.submit::<Parent>(()).await.unwrap();
    let attempt = handle.ended().await.unwrap().attempt;
    longhaul.stop().await;
    assert_eq!(*calls.made(), [("completed", attempt, Status::Completed)]);
}

/// Counts what was submitted of its type.
#[derive(Clone, Default)]
struct Counted(Arc<Mutex<Vec<Option<longhaul_domain::TaskId>>>>);

impl Task for Counted {
    const TYPE: &'static str = "counted";
    type Params = u32;
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        if ctx.params == 2 {
            ctx.submit_all::<Self>([7, 7, 8]).await?;
        }
        Ok(())
    }

    async fn on_queued(&self, task: &TaskInfo) {
        self.0.lock().unwrap().push(task.parent_id);
        assert!(
            task.parent_id.is_some(),
            "a hook that panics takes no other along"
        );
    }
}

#[tokio::test]
async fn each_task_of_a_bulk_submit_and_each_child_is_told_as_queued_once() {
    let counted = Counted::default();
    let longhaul = TestLonghaul::new().register(counted.clone()).start();
    let tasks = [0, 1, 2, 2].map(|number| {
        longhaul
            .submit::<Counted>(number)
            .idempotency_key(&format!("{number}"))
    });
    let handles = longhaul.submit_all(tasks).await.unwrap();

    longhaul.run_until_done().await;
    let parent = Some(handles[3].id());
    assert_eq!(
        *counted.0.lock().unwrap(),
        [None, None, None, parent, parent, parent]
    );
}

/// Its hooks take their time.
#[derive(Clone, Default)]
struct Slow(Arc<Notify>, Arc<Mutex<bool>>);

impl Task for Slow {
    const TYPE: &'static str = "slow";
    type Params = ();
    type Output = ();

    async fn run(&self, _ctx: Context<Self>) -> Outcome<()> {
        Ok(())
    }

    async fn on_completed(&self, _task: &TaskInfo) {
        self.0.notify_one();
        tokio::time::sleep(Duration::from_secs(1)).await;
        *self.1.lock().unwrap() = true;
    }

    async fn on_cancelled(&self, task: &TaskInfo) {
        self.on_completed(task).await;
    }
}

/// By tokio's clock, which skips what nobody works in.
#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_hooks() {
    let slow = Slow::default();
    let store = Arc::new(store());
    let longhaul = on(&store).register(slow.clone()).start().await.unwrap();
    longhaul.submit::<Slow>(()).await.unwrap();
    slow.0.notified().await;
    longhaul.stop().await;
    assert!(*slow.1.lock().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_process_without_a_worker_waits_for_hooks_as_well() {
    let slow = Slow::default();
    let store = Arc::new(store());
    let longhaul = on(&store).register(slow.clone()).without_worker().unwrap();
    longhaul
        .submit::<Slow>(())
        .await
        .unwrap()
        .cancel()
        .await
        .unwrap();

    longhaul.stop().await;
    assert!(*slow.1.lock().unwrap());
}

/// Has one child, which kills its node.
struct Orphanage;

impl Task for Orphanage {
    const TYPE: &'static str = "orphanage";
    type Params = ();
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        ctx.submit::<Held>(()).await?;
        Err(Stop::wait_for_children())
    }
}

#[tokio::test]
async fn the_end_of_a_parent_is_told_when_its_last_child_is_quarantined() {
    let calls = Calls::new();
    let started = Arc::new(Notify::new());
    let maintenance = MaintenanceSettings {
        rescue_every: Duration::from_millis(10),
        max_crashes: 1,
        ..MaintenanceSettings::default()
    };
    let held = Held(calls.clone(), Arc::clone(&started));
    let builder = on(&calls.store)
        .register(held)
        .register(Orphanage)
        .maintenance(maintenance);

    let longhaul = builder.start().await.unwrap();
    let mut news = longhaul.events(Subscription::default());
    let parent = longhaul.submit::<Orphanage>(()).await.unwrap().id();

    let mut next_of_parent = async |is_it: fn(Status) -> bool| {
        let told = async {
            loop {
                let Some(Received::Event(event)) = news.next().await else {
                    continue;
                };
                if event.task_id == parent && is_it(event.status) {
                    return event.status;
                }
            }
        };

        tokio::time::timeout(DEADLINE, told)
            .await
            .expect("nobody tells of it")
    };

    next_of_parent(|status| status == Status::Waiting).await;
    started.notified().await;
    calls
        .store
        .declare_others_dead(NodeId(uuid::Uuid::nil()))
        .await
        .unwrap();
    assert_eq!(next_of_parent(Status::is_ended).await, Status::Failed);
    longhaul.stop().await;
}
