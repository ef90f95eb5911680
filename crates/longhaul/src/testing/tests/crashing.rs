//! Crashes at a known place, and what comes after them.

use super::{Flaky, Steps, panic_of};
use crate::{AttemptEndKind, MaintenanceSettings, Status, testing::TestLonghaul};

#[tokio::test]
async fn a_crash_goes_on_from_the_checkpoint() {
    let steps = Steps::default();
    let longhaul = TestLonghaul::new().register(steps.clone()).start();
    let handle = longhaul.submit::<Steps>(()).await.unwrap();
    longhaul.crash_after_checkpoints(3);
    longhaul.run_until_idle().await;
    assert_eq!((longhaul.crashes(), longhaul.result(&handle)), (1, 3));
    assert_eq!(
        *steps.seen.lock().unwrap(),
        [1, 2, 3, 4, 5],
        "the third step is not repeated"
    );

    let task = longhaul.record(&handle);
    assert_eq!(
        (task.attempt, task.crash_count, task.retry_count),
        (2, 1, 0)
    );
    assert_eq!(longhaul.attempts(&handle)[0].end, AttemptEndKind::Crashed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_takes_along_whatever_runs_on_any_thread() {
    let longhaul = TestLonghaul::new().register(Steps::default()).start();
    let tasks = (0..8).map(|_| longhaul.submit::<Steps>(()));
    let handles = longhaul.submit_all(tasks).await.unwrap();
    longhaul.crash_after_checkpoints(10);
    longhaul.run_until_idle().await;
    assert_eq!(longhaul.crashes(), 1);
    let crashed = handles
        .iter()
        .filter(|handle| longhaul.record(handle).crash_count == 1)
        .count();

    assert_eq!(crashed, 8, "no report had been delivered yet");
    for handle in &handles {
        longhaul.assert_ended(handle, Status::Completed);
    }
}

#[tokio::test]
async fn a_blocking_handler_crashes_too_and_leaves_no_thread_behind() {
    let longhaul = TestLonghaul::new()
        .register(Steps {
            is_blocking: true,
            ..Steps::default()
        })
        .start();

    let handle = longhaul.submit::<Steps>(()).await.unwrap();
    longhaul.crash_after_checkpoints(2);
    longhaul.run_until_idle().await;
    assert_eq!((longhaul.crashes(), longhaul.result(&handle)), (1, 2));
}

#[tokio::test]
async fn checkpoints_count_from_the_call_on_and_once() {
    let longhaul = TestLonghaul::new().register(Steps::default()).start();
    longhaul.submit::<Steps>(()).await.unwrap();
    longhaul.run_until_idle().await;
    longhaul.crash_after_checkpoints(5);
    let handle = longhaul.submit::<Steps>(()).await.unwrap();

    longhaul.run_until_idle().await;
    assert_eq!((longhaul.crashes(), longhaul.result(&handle)), (1, 5));
    longhaul.submit::<Steps>(()).await.unwrap();
    longhaul.run_until_idle().await;
    assert_eq!(longhaul.crashes(), 1, "a fuse blows once");
}

#[tokio::test]
async fn a_crash_that_never_comes_is_not_counted() {
    let longhaul = TestLonghaul::new().register(Steps::default()).start();
    longhaul.submit::<Steps>(()).await.unwrap();
    longhaul.crash_after_checkpoints(6);
    longhaul.run_until_idle().await;
    assert_eq!(longhaul.crashes(), 0);
}

#[tokio::test]
async fn the_duties_of_the_test_decide_what_a_crash_means() {
    let strict = MaintenanceSettings {
        max_crashes: 1,
        ..MaintenanceSettings::default()
    };
    let longhaul = TestLonghaul::new()
        .register(Steps::default())
        .configure(|builder| builder.maintenance(strict))
        .start();
    let handle = longhaul.submit::<Steps>(()).await.unwrap();

    longhaul.crash_after_checkpoints(1);
    longhaul.run_until_idle().await;
    longhaul.assert_ended(&handle, Status::DeadLetter);
}

#[tokio::test]
async fn the_first_checkpoint_is_number_one() {
    let longhaul = TestLonghaul::new().register(Flaky).start();
    let message = panic_of(async { longhaul.crash_after_checkpoints(0) }).await;
    assert!(message.contains("number 1"), "{message}");
}
