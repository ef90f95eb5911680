//! What a test may ask, and what it is told when it is wrong.

use super::{Flaky, Steps, panic_of};
use crate::{AttemptEndKind, Status, testing::TestLonghaul};

#[tokio::test]
async fn what_was_submitted_is_told_by_type_and_in_order() {
    let longhaul = TestLonghaul::new()
        .register(Flaky)
        .register(Steps::default())
        .start();
    for number in [7, 1, 4] {
        longhaul.submit::<Flaky>(number).await.unwrap();
        longhaul.submit::<Steps>(()).await.unwrap();
    }

    assert_eq!(longhaul.submitted::<Flaky>(), [7, 1, 4]);
    assert_eq!(longhaul.submitted::<Steps>().len(), 3);
}

#[tokio::test]
async fn more_tasks_than_fit_a_page_are_all_told() {
    let longhaul = TestLonghaul::new().register(Flaky).start();
    let tasks = (0..2_500).map(|number| longhaul.submit::<Flaky>(number));
    longhaul.submit_all(tasks).await.unwrap();
    assert!(longhaul.submitted::<Flaky>().into_iter().eq(0..2_500));
}

#[tokio::test]
async fn each_task_of_a_batch_has_its_own_names() {
    let longhaul = TestLonghaul::new().register(Flaky).start();
    let task = || longhaul.submit::<Flaky>(0);
    let batch = [
        task(),
        task().owner("ann"),
        task().queue("vip_long"),
        task().tier("vip"),
        task().owner("bob"),
        task(),
    ];

    let handles = longhaul.submit_all(batch).await.unwrap();
    let records: Vec<_> = handles
        .iter()
        .map(|handle| longhaul.record(handle))
        .collect();
    let names: Vec<_> = records
        .iter()
        .map(|record| (&*record.owner, &*record.queue, &*record.task_type))
        .collect();

    let kind = <Flaky as crate::Task>::TYPE;
    let wanted = [
        ("default", "free_default"),
        ("ann", "free_default"),
        ("default", "vip_long"),
        ("default", "vip_short"),
        ("bob", "free_default"),
        ("default", "free_default"),
    ];

    assert_eq!(names, wanted.map(|(owner, queue)| (owner, queue, kind)));
    let refused = longhaul
        .submit_all([task(), task().owner("")])
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("userId"), "{refused}");
}

#[tokio::test]
async fn attempts_and_logs_are_told_in_order() {
    let longhaul = TestLonghaul::new().register(Flaky).start();
    let handle = longhaul.submit::<Flaky>(1).await.unwrap();
    longhaul.run_until_done().await;
    assert_eq!(longhaul.logs(&handle), ["attempt 1", "attempt 2"]);
    let outcomes: Vec<AttemptEndKind> = longhaul
        .attempts(&handle)
        .iter()
        .map(|attempt| attempt.end)
        .collect();

    assert_eq!(
        outcomes,
        [AttemptEndKind::Failed, AttemptEndKind::Completed]
    );
}

#[tokio::test]
async fn a_wrong_end_is_explained() {
    let longhaul = TestLonghaul::new().register(Flaky).start();
    let handle = longhaul.submit::<Flaky>(9).max_attempts(2).await.unwrap();
    longhaul.run_until_done().await;
    longhaul.assert_ended(&handle, Status::DeadLetter);
    let message = panic_of(async { longhaul.assert_ended(&handle, Status::Completed) }).await;

    for part in [
        "should have ended COMPLETED",
        "DEAD_LETTER",
        "2 attempts",
        "attempt 1: failed (retryable: not yet)",
    ] {
        assert!(message.contains(part), "{part} is missing in {message}");
    }

    assert!(
        message.contains("log of attempt 2: [info] attempt 2"),
        "{message}"
    );
}

#[tokio::test]
async fn a_status_that_is_no_end_cannot_be_asserted_as_one() {
    let longhaul = TestLonghaul::new().register(Flaky).start();
    let handle = longhaul.submit::<Flaky>(0).await.unwrap();
    let message = panic_of(async { longhaul.assert_ended(&handle, Status::Queued) }).await;
    assert!(message.contains("QUEUED is no end"), "{message}");
}

#[tokio::test]
async fn a_missing_result_is_explained_and_not_waited_for() {
    let longhaul = TestLonghaul::new().register(Flaky).start();
    let handle = longhaul.submit::<Flaky>(0).await.unwrap();
    let message = panic_of(async { longhaul.result(&handle) }).await;
    assert!(
        message.contains("no result") && message.contains("never run"),
        "{message}"
    );
}

#[tokio::test]
async fn a_type_that_is_registered_twice_is_told_at_the_start() {
    let message =
        panic_of(async { TestLonghaul::new().register(Flaky).register(Flaky).start() }).await;
    assert!(message.contains("registered twice"), "{message}");
}
