//! Which hooks are called for a task, and with which status.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use longhaul::{
    Children, Context, MaintenanceSettings, Outcome, Received, Status, Stop, Subscription, Task,
    TaskInfo, WorkerSettings, testing::TestLonghaul,
};
use longhaul_domain::{NodeId, contract::store::Leases};
use longhaul_testkit::reference::MemoryStore;
use tokio::sync::{Notify, Semaphore};

use crate::memory_store::{Echo, on, store};

/// Far more than any case takes.
const DEADLINE: Duration = Duration::from_secs(60);

/// A hook with the attempt, and the status that the task had in the store then.
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

    /// Waits for this many more calls.
    async fn called(&self, more: u32) {
        let called = self.one_more.acquire_many(more);
        tokio::time::timeout(DEADLINE, called)
            .await
            .expect("a hook was not called")
            .unwrap()
            .forget();
    }
}

/// Ends like this in its first attempt, then with a result. All its hooks are noted.
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

/// The hooks of one attempt that ends like this.
async fn calls_of(first: End) -> Vec<Call> {
    calls_of_at_most(first, 5).await
}

/// The same of a task with this many attempts.
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
struct Waits(Calls, Arc<Notify>);

impl Task for Waits {
    const TYPE: &'static str = "waits";
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

    let waits = Waits(calls.clone(), Arc::clone(&started));
    let longhaul = on(&calls.store)
        .register(waits)
        .worker(worker)
        .maintenance(maintenance)
        .start()
        .await
        .unwrap();

    longhaul.submit::<Waits>(()).await.unwrap();
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
async fn a_cancel_hook_is_called_once_whichever_process_cancels() {
    for is_elsewhere in [false, true] {
        let calls = Calls::new();
        let started = Arc::new(Notify::new());
        let builder = || on(&calls.store).register(Waits(calls.clone(), Arc::clone(&started)));
        let worker = WorkerSettings {
            heartbeat: Duration::from_millis(10),
            ..WorkerSettings::default()
        };
        let longhaul = builder().worker(worker).start().await.unwrap();
        let elsewhere = builder().without_worker().unwrap();

        let id = longhaul.submit::<Waits>(()).await.unwrap().id();
        started.notified().await;
        let canceller = if is_elsewhere { &elsewhere } else { &longhaul };
        assert_eq!(canceller.cancel(id).await.unwrap(), Status::Cancelled);
        calls.called(1).await;

        // A hook that another process calls is called before this one has stopped.
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

/// Notes the parent of each task that is queued.
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

/// Has one child.
struct Orphanage;

impl Task for Orphanage {
    const TYPE: &'static str = "orphanage";
    type Params = ();
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        ctx.submit::<Waits>(()).await?;
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
    let waits = Waits(calls.clone(), Arc::clone(&started));
    let builder = on(&calls.store)
        .register(waits)
        .register(Orphanage)
        .maintenance(maintenance);

    let longhaul = builder.start().await.unwrap();
    let mut events = longhaul.events(Subscription::default());
    let parent = longhaul.submit::<Orphanage>(()).await.unwrap().id();

    let mut next_of_parent = async |is_it: fn(Status) -> bool| {
        let found = async {
            loop {
                let Some(Received::Event(event)) = events.next().await else {
                    continue;
                };
                if event.task_id == parent && is_it(event.status) {
                    return event.status;
                }
            }
        };

        tokio::time::timeout(DEADLINE, found)
            .await
            .expect("no event in time")
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
