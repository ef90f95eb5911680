//! Checkpoints never go back: a slow write is awaited, and an unwritten state is not lost.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use std::time::Duration;

use async_trait::async_trait;
use longhaul::{
    Context, Outcome, Stop, Task, TaskRecord, TypeSettings, WorkerSettings, testing::TestLonghaul,
};
use longhaul_testkit::reference::CheckpointWatch;
use tokio::sync::{Notify, Semaphore};

use crate::memory_store::{on, store};

/// Blocks the first checkpoint on its way to the store. The others pass.
#[derive(Debug)]
struct Gate {
    came: AtomicUsize,
    is_blocked: Notify,
    exit: Semaphore,
    landed: Semaphore,
}

impl Gate {
    fn new() -> Arc<Self> {
        let exit = Semaphore::new(0);
        let landed = Semaphore::new(0);
        Arc::new(Self {
            came: AtomicUsize::new(0),
            is_blocked: Notify::new(),
            exit,
            landed,
        })
    }

    fn open(&self) {
        self.exit.add_permits(1);
    }

    async fn landed(&self, writes: u32) {
        self.landed.acquire_many(writes).await.unwrap().forget();
    }
}

#[async_trait]
impl CheckpointWatch for Gate {
    async fn before(&self) {
        if self.came.fetch_add(1, Ordering::SeqCst) == 0 {
            self.is_blocked.notify_one();
            self.exit.acquire().await.unwrap().forget();
        }
    }

    async fn after(&self) {
        self.landed.add_permits(1);
    }
}

fn checkpoint(task: &TaskRecord) -> Option<&str> {
    task.checkpoint
        .as_ref()
        .map(|checkpoint| checkpoint.as_str())
}

/// Its state is saved automatically as 1, and that write is blocked. Then it saves 2.
struct Overtaking(Arc<Gate>);

impl Task for Overtaking {
    const TYPE: &'static str = "overtaking";
    type Params = ();
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        let mut state = ctx.state::<u32>()?;
        state.change(|state| *state = 1)?;
        self.0.is_blocked.notified().await;
        state.change(|state| *state = 2)?;
        let (saved, ()) = tokio::join!(state.save(), async { self.0.open() });

        saved?;
        self.0.landed(2).await;
        Err(Stop::fatal("done"))
    }

    fn settings(&self) -> TypeSettings {
        TypeSettings::new().checkpoint_every(Duration::from_millis(1))
    }
}

#[tokio::test]
async fn a_checkpoint_is_not_overtaken_by_an_older_one_that_was_slow() {
    let gate = Gate::new();
    let store = Arc::new(store().watched(Arc::clone(&gate) as _));
    let longhaul = on(&store).register(Overtaking(gate)).start().await.unwrap();
    let task = longhaul
        .submit::<Overtaking>(())
        .await
        .unwrap()
        .ended()
        .await
        .unwrap();

    assert_eq!(checkpoint(&task), Some("2"));
    longhaul.stop().await;
}

/// Changes its state once and runs until it should stop.
struct Long(Arc<Notify>);

impl Task for Long {
    const TYPE: &'static str = "long";
    type Params = ();
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        struct Over(Arc<Notify>);
        impl Drop for Over {
            fn drop(&mut self) {
                self.0.notify_one();
            }
        }

        // Dropped after the state.
        let _over = Over(Arc::clone(&self.0));
        let mut state = ctx.state::<u32>()?;
        state.change(|state| *state = 7)?;
        ctx.cancelled().await;

        ctx.check()
    }

    fn settings(&self) -> TypeSettings {
        TypeSettings::new().checkpoint_every(Duration::from_millis(1))
    }
}

#[tokio::test]
async fn a_state_whose_write_is_under_way_at_a_drain_is_not_lost() {
    let gate = Gate::new();
    let over = Arc::new(Notify::new());
    let store = Arc::new(store().watched(Arc::clone(&gate) as _));
    let soon = WorkerSettings {
        drain: Duration::ZERO,
        ..WorkerSettings::default()
    };
    let longhaul = on(&store)
        .register(Long(Arc::clone(&over)))
        .worker(soon)
        .start()
        .await
        .unwrap();

    let id = longhaul.submit::<Long>(()).await.unwrap().id();
    gate.is_blocked.notified().await;
    tokio::join!(longhaul.stop(), async {
        over.notified().await;
        gate.open();
    });
    store.look(|tasks, _| assert_eq!(checkpoint(&tasks[&id]), Some("7")));
}

/// Has done three steps when its first attempt ends like this. The next one returns where it
/// resumes.
struct Steps(fn() -> Stop);

impl Task for Steps {
    const TYPE: &'static str = "steps";
    type Params = ();
    type Output = u32;

    async fn run(&self, ctx: Context<Self>) -> Outcome<u32> {
        let mut done = ctx.state::<u32>()?;
        if ctx.attempt() > 1 {
            return Ok(*done);
        }
        done.change(|done| *done = 3)?;
        Err((self.0)())
    }

    fn settings(&self) -> TypeSettings {
        TypeSettings::new().checkpoint_every(Duration::from_secs(3_600))
    }
}

#[tokio::test]
async fn what_was_done_before_a_snooze_or_a_failure_is_not_done_again() {
    let ends: [fn() -> Stop; 3] = [
        || Stop::snooze(Duration::from_secs(1)),
        || Stop::retryable("not yet"),
        Stop::hand_back,
    ];
    for end in ends {
        let longhaul = TestLonghaul::new().register(Steps(end)).start();
        let handle = longhaul.submit::<Steps>(()).await.unwrap();
        longhaul.run_until_done().await;
        assert_eq!(longhaul.result(&handle), 3);
    }
}
