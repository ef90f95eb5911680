//! Rounds and the clock: what is due runs, what is not waits, and no test does.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::{Flaky, HOUR, MINUTE, panic_of};
use crate::{
    Children, Context, Job, Outcome, Status, Stop, StoreError, Task, TaskInfo, TypeSettings,
    testing::TestLonghaul,
};

#[tokio::test]
async fn nothing_runs_before_the_test_says_so() {
    let longhaul = TestLonghaul::new().register(Flaky).start();
    let handle = longhaul.submit::<Flaky>(0).await.unwrap();
    tokio::task::yield_now().await;
    assert_eq!(longhaul.record(&handle).status, Status::Queued);
    longhaul.run_until_idle().await;
    assert_eq!(longhaul.result(&handle), 1);
    assert_eq!(
        handle.result().await.unwrap(),
        1,
        "the handle knows it too, without waiting"
    );
}

#[tokio::test]
async fn a_task_waits_for_its_time_by_the_clock_of_the_test() {
    let longhaul = TestLonghaul::new().register(Flaky).start();
    let handle = longhaul.submit::<Flaky>(0).delay(HOUR).await.unwrap();
    longhaul.advance(HOUR - MINUTE);
    longhaul.run_until_idle().await;
    assert_eq!(longhaul.record(&handle).attempt, 0);
    longhaul.advance(MINUTE);
    longhaul.run_until_idle().await;
    longhaul.assert_ended(&handle, Status::Completed);
}

#[tokio::test]
async fn the_clock_stands_still_until_it_is_moved() {
    let longhaul = TestLonghaul::new().register(Flaky).start();
    let before = longhaul.now();
    longhaul.submit::<Flaky>(1).await.unwrap();
    longhaul.run_until_idle().await;
    assert!(
        longhaul.now().micros_since(before) < 1_000,
        "a microsecond for each reading, and nothing else"
    );
    longhaul.advance(HOUR);

    assert!(longhaul.now().micros_since(before) >= 3_600_000_000);
}

#[tokio::test]
async fn a_key_holds_as_long_as_its_submitter_says() {
    let longhaul = TestLonghaul::new().register(Flaky).start();
    let submit = || async {
        longhaul
            .submit::<Flaky>(0)
            .idempotency_key("k")
            .key_holds(MINUTE)
            .await
            .unwrap()
            .id()
    };

    let first = submit().await;
    longhaul.advance(MINUTE / 2);
    assert_eq!(submit().await, first);
    longhaul.advance(MINUTE);
    assert_ne!(submit().await, first);
}

#[tokio::test]
async fn until_done_jumps_over_every_wait() {
    let longhaul = TestLonghaul::new().register(Flaky).start();
    let handle = longhaul.submit::<Flaky>(3).delay(HOUR).await.unwrap();
    let before = longhaul.now();
    longhaul.run_until_done().await;
    assert_eq!(longhaul.result(&handle), 4);

    // An hour of delay, and waits of one, two and four minutes with a fifth of jitter.
    let minutes = longhaul.now().micros_since(before) / 60_000_000;
    assert!((60 + 5..=60 + 9).contains(&minutes), "{minutes}");
}

#[tokio::test]
async fn a_deadline_is_a_moment_to_jump_to() {
    let longhaul = TestLonghaul::new().register(Flaky).start();
    let deadline = longhaul.now().plus_ms(60_000);
    let handle = longhaul
        .submit::<Flaky>(0)
        .delay(HOUR)
        .deadline(deadline)
        .await
        .unwrap();

    longhaul.run_until_done().await;
    let task = longhaul.record(&handle);
    assert_eq!(
        (task.attempt, task.error.unwrap().class.as_str()),
        (0, "deadline")
    );
    assert!(longhaul.now() < deadline.plus_ms(60_000));
}

#[tokio::test]
async fn what_nobody_can_run_is_told_instead_of_waited_for() {
    let longhaul = TestLonghaul::new().start();
    longhaul.submit::<Flaky>(0).delay(HOUR).await.unwrap();
    let message = panic_of(longhaul.run_until_done()).await;
    assert!(
        message.contains("nothing will ever run") && message.contains("flaky"),
        "{message}"
    );
}

#[tokio::test]
async fn a_task_that_is_put_back_for_ever_is_told_of() {
    async fn later(_: (), _job: Job) -> Outcome<()> {
        Err(Stop::snooze(Duration::ZERO))
    }

    struct Later;
    impl Task for Later {
        const TYPE: &'static str = "later";
        type Params = ();
        type Output = ();
        async fn run(&self, _ctx: Context<Self>) -> Outcome<()> {
            later((), (*_ctx).clone()).await
        }
    }

    let longhaul = TestLonghaul::new()
        .register_fn("later", TypeSettings::new(), later)
        .start();
    longhaul.submit::<Later>(()).await.unwrap();
    let message = panic_of(longhaul.run_until_idle()).await;

    assert!(
        message.contains("later") && message.contains("10000 snoozes"),
        "{message}"
    );
}

#[tokio::test]
async fn a_clock_that_jumps_does_not_kill_the_worker() {
    let longhaul = TestLonghaul::new().register(Flaky).start();
    longhaul.submit::<Flaky>(0).await.unwrap();
    longhaul.run_until_idle().await;
    longhaul.advance(HOUR * 24);
    let handle = longhaul.submit::<Flaky>(0).await.unwrap();

    longhaul.run_until_idle().await;
    longhaul.assert_ended(&handle, Status::Completed);
    assert_eq!(
        (longhaul.record(&handle).crash_count, longhaul.crashes()),
        (0, 0)
    );
    assert_eq!(
        longhaul.engine().leases().list_nodes().await.unwrap().len(),
        1,
        "it is the same node all the time"
    );
}

#[tokio::test]
async fn retention_is_a_duty_of_each_round() {
    let longhaul = TestLonghaul::new().register(Flaky).start();
    let handle = longhaul.submit::<Flaky>(0).await.unwrap();
    longhaul.run_until_idle().await;
    longhaul.advance(HOUR * 24 * 8);
    longhaul.run_until_idle().await;
    assert_eq!(
        longhaul.task(handle.id()).await.unwrap_err(),
        StoreError::NotFound
    );
}

/// Sleeps for hours by tokio's clock.
struct Sleeper;

impl Task for Sleeper {
    const TYPE: &'static str = "sleeper";
    type Params = ();
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        ctx.sleep(HOUR * 5).await?;
        tokio::time::sleep(HOUR).await;
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn on_a_paused_runtime_handlers_sleep_in_no_time() {
    let longhaul = TestLonghaul::new().register(Sleeper).start();
    let handle = longhaul.submit::<Sleeper>(()).await.unwrap();
    let by_tokio = tokio::time::Instant::now();
    let started = Instant::now();
    longhaul.run_until_idle().await;
    longhaul.assert_ended(&handle, Status::Completed);
    assert!(
        by_tokio.elapsed() >= HOUR * 6 && started.elapsed() < MINUTE,
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn on_a_paused_runtime_a_timeout_comes_at_once() {
    let longhaul = TestLonghaul::new().register(Sleeper).start();
    let handle = longhaul
        .submit::<Sleeper>(())
        .timeout(HOUR)
        .max_attempts(1)
        .await
        .unwrap();

    longhaul.run_until_idle().await;
    longhaul.assert_ended(&handle, Status::DeadLetter);
    assert_eq!(
        longhaul.attempts(&handle)[0].error.as_ref().unwrap().class,
        "timeout"
    );
}

/// Waits to be cancelled, and counts its hooks.
#[derive(Default, Clone)]
struct Patient {
    started: Arc<Notify>,
    hooks: Arc<AtomicUsize>,
}

impl Task for Patient {
    const TYPE: &'static str = "patient";
    type Params = ();
    type Output = ();

    async fn run(&self, ctx: Context<Self>) -> Outcome<()> {
        self.started.notify_one();
        ctx.cancelled().await;
        ctx.check()
    }

    async fn on_cancelled(&self, _task: &TaskInfo) {
        // A hook takes its time, and is waited for all the same.
        tokio::task::yield_now().await;
        self.hooks.fetch_add(1, Ordering::SeqCst);
    }

    async fn on_queued(&self, _task: &TaskInfo) {
        self.hooks.fetch_add(10, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_running_handler_hears_a_cancel_and_hooks_are_waited_for() {
    let patient = Patient::default();
    let longhaul = TestLonghaul::new().register(patient.clone()).start();
    let handle = longhaul.submit::<Patient>(()).await.unwrap();
    let cancel = async {
        patient.started.notified().await;
        handle.cancel().await.unwrap()
    };
    let ((), status) = tokio::join!(longhaul.run_until_idle(), cancel);

    assert_eq!(status, Status::Cancelled);
    longhaul.assert_ended(&handle, Status::Cancelled);
    assert_eq!(patient.hooks.load(Ordering::SeqCst), 11);
}

/// A parent whose children are flaky.
struct Parent;

impl Task for Parent {
    const TYPE: &'static str = "parent";
    const FINISH_STEP: bool = true;
    type Params = u32;
    type Output = u32;

    async fn run(&self, ctx: Context<Self>) -> Outcome<u32> {
        ctx.submit_all::<Flaky>(0..ctx.params).await?;
        Err(Stop::wait_for_children())
    }

    async fn finish(&self, _ctx: Context<Self>, children: Children) -> Outcome<u32> {
        Ok(children.results::<Flaky>()?.iter().sum())
    }
}

#[tokio::test]
async fn parents_and_children_run_to_their_end() {
    let longhaul = TestLonghaul::new().register(Parent).register(Flaky).start();
    let handle = longhaul.submit::<Parent>(3).await.unwrap();
    longhaul.run_until_idle().await;
    assert_eq!(
        longhaul.record(&handle).status,
        Status::Waiting,
        "two children wait for their retries"
    );
    longhaul.run_until_done().await;

    assert_eq!(longhaul.result(&handle), 1 + 2 + 3);
    assert_eq!(longhaul.submitted::<Flaky>(), [0, 1, 2]);
}

#[tokio::test]
async fn files_are_kept_in_memory() {
    async fn draw(_: (), job: Job) -> Outcome<String> {
        Ok(job
            .store_artifact("a.txt", "text/plain", b"drawn")
            .await?
            .key)
    }

    struct Draw;
    impl Task for Draw {
        const TYPE: &'static str = "draw";
        type Params = ();
        type Output = String;
        async fn run(&self, ctx: Context<Self>) -> Outcome<String> {
            draw((), (*ctx).clone()).await
        }
    }

    let longhaul = TestLonghaul::new().register(Draw).start();
    let handle = longhaul.submit::<Draw>(()).await.unwrap();
    longhaul.run_until_idle().await;
    let artifacts = &longhaul.sdk_client().files.store;
    let (artifact, bytes) = artifacts.get(&longhaul.result(&handle)).await.unwrap();

    assert_eq!(
        (artifact.file_name.as_str(), bytes.as_slice()),
        ("a.txt", b"drawn".as_slice())
    );
    artifacts.remove_all(handle.id()).await.unwrap();
    assert!(artifacts.get(&artifact.key).await.is_err());
    assert!(!std::path::Path::new("longhaul-artifacts").exists());
}

/// Blocks its thread with an await that never ends.
struct Stuck(Arc<Notify>);

impl Task for Stuck {
    const TYPE: &'static str = "stuck";
    type Params = ();
    type Output = ();

    async fn run(&self, _ctx: Context<Self>) -> Outcome<()> {
        struct OnDrop(Arc<Notify>);
        impl Drop for OnDrop {
            fn drop(&mut self) {
                self.0.notify_one();
            }
        }

        let _on_drop = OnDrop(Arc::clone(&self.0));
        std::future::pending().await
    }

    fn settings(&self) -> TypeSettings {
        TypeSettings::new()
            .blocking()
            .timeout(Duration::from_millis(20))
            .max_attempts(1)
    }
}

/// On a runtime that can be left behind: one with a stuck thread would wait for it instead of
/// failing.
#[test]
fn a_blocking_handler_that_is_past_its_timeout_is_dropped_at_its_await() {
    let dropped = Arc::new(Notify::new());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();

    let (status, is_dropped) = runtime.block_on(async {
        let longhaul = TestLonghaul::new()
            .register(Stuck(Arc::clone(&dropped)))
            .start();
        let handle = longhaul.submit::<Stuck>(()).await.unwrap();
        longhaul.run_until_idle().await;
        let notified = tokio::time::timeout(Duration::from_secs(20), dropped.notified()).await;
        (longhaul.record(&handle).status, notified.is_ok())
    });

    runtime.shutdown_background();
    assert_eq!((status, is_dropped), (Status::DeadLetter, true));
}
