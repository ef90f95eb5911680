//! How attempts end: results, retries, failures, panics, timeouts, snoozes.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};
use std::time::Duration;

use libtest_mimic::Trial;
use longhaul::{Class, Context, JsonSchema, NoResult, Outcome, Status, Stop, Task, TypeSettings};
use longhaul_testkit::names::queue_name;
use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, Semaphore};

use crate::{Home, Place, open, quick, trial};

pub(crate) fn trials(place: Place) -> Vec<Trial> {
    vec![
        trial(
            place,
            "ends::a_retryable_error_is_tried_again",
            a_retryable_error_is_tried_again,
        ),
        trial(
            place,
            "ends::used_up_retries_are_a_dead_letter",
            used_up_retries_are_a_dead_letter,
        ),
        trial(
            place,
            "ends::an_unknown_error_is_fatal",
            an_unknown_error_is_fatal,
        ),
        trial(
            place,
            "ends::a_type_knows_its_own_errors",
            a_type_knows_its_own_errors,
        ),
        trial(
            place,
            "ends::a_panic_is_a_failure_of_its_task_alone",
            a_panic_is_a_failure_of_its_task_alone,
        ),
        trial(
            place,
            "ends::parameters_that_do_not_parse_are_not_retried",
            parameters_that_do_not_parse,
        ),
        trial(
            place,
            "ends::an_attempt_that_takes_too_long_is_ended",
            an_attempt_that_takes_too_long_is_ended,
        ),
        trial(
            place,
            "ends::a_snooze_uses_up_no_retry",
            a_snooze_uses_up_no_retry,
        ),
        trial(
            place,
            "ends::a_result_that_is_too_large_is_a_failure",
            a_result_that_is_too_large_is_a_failure,
        ),
    ]
}

#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, PartialEq)]
enum How {
    Retryable,
    Unknown,
    Known,
    Panic,
    Hang,
    Snooze,
    Huge,
}

/// Ends that way in the first `times` attempts, then succeeds with the attempt's number.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Plan {
    how: How,
    times: u32,
}

#[derive(Default)]
struct Ends {
    runs: AtomicU32,
}

#[derive(Debug, thiserror::Error)]
#[error("the provider is busy")]
struct Busy;

impl Task for Ends {
    const TYPE: &'static str = "ends";
    type Params = Plan;
    type Output = String;

    async fn run(&self, ctx: Context<Self>) -> Outcome<String> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        if ctx.attempt() > ctx.params.times {
            return Ok(format!("attempt {}", ctx.attempt()));
        }

        match ctx.params.how {
            How::Retryable => Err(Stop::retryable("not yet")),
            How::Unknown => Err(std::fmt::Error)?,
            How::Known => Err(Busy)?,
            How::Panic => panic!("a bug in the handler"),
            How::Hang => std::future::pending().await,
            How::Snooze => Err(Stop::snooze(Duration::from_millis(1))),
            How::Huge => Ok("x".repeat(300_000)),
        }
    }

    fn settings(&self) -> TypeSettings {
        quick().timeout(Duration::from_millis(200)).max_attempts(3)
    }

    fn classify(&self, error: &(dyn std::error::Error + 'static)) -> Class {
        if error.is::<Busy>() {
            Class::Retryable
        } else {
            Class::Fatal
        }
    }
}

/// Runs one task and answers with its end.
async fn run(
    database: &Home,
    how: How,
    times: u32,
) -> (Result<String, NoResult>, longhaul_domain::TaskRecord) {
    let longhaul = open(database)
        .await
        .register(Ends::default())
        .start()
        .await
        .unwrap();

    let handle = longhaul.submit::<Ends>(Plan { how, times }).await.unwrap();
    let result = handle.result().await;
    let task = handle.task().await.unwrap();
    longhaul.stop().await;

    (result, task)
}

async fn a_retryable_error_is_tried_again(database: Home) {
    let (result, task) = run(&database, How::Retryable, 2).await;
    assert_eq!(result.unwrap(), "attempt 3");
    assert_eq!((task.attempt, task.retry_count), (3, 2));
}

async fn used_up_retries_are_a_dead_letter(database: Home) {
    let (result, task) = run(&database, How::Retryable, 9).await;
    let Err(NoResult::Ended { status, error }) = result else {
        panic!("{result:?}")
    };
    assert_eq!(status, Status::DeadLetter);
    assert_eq!(error.unwrap().message, "not yet");
    assert_eq!(task.attempt, 3);
}

async fn an_unknown_error_is_fatal(database: Home) {
    let (_, task) = run(&database, How::Unknown, 9).await;
    assert_eq!((task.status, task.attempt), (Status::Failed, 1));
    assert_eq!(task.error.unwrap().class, "fatal");
}

async fn a_type_knows_its_own_errors(database: Home) {
    let (result, _) = run(&database, How::Known, 1).await;
    assert_eq!(result.unwrap(), "attempt 2");
}

/// Runs until the gate opens.
struct Beside(Arc<Semaphore>, Arc<Notify>);

impl Task for Beside {
    const TYPE: &'static str = "beside";
    type Params = ();
    type Output = u32;

    async fn run(&self, ctx: Context<Self>) -> Outcome<u32> {
        self.1.notify_one();
        tokio::select! {
            open = self.0.acquire() => open?.forget(),
            () = ctx.cancelled() => ctx.check()?,
        }
        Ok(ctx.attempt())
    }
}

async fn a_panic_is_a_failure_of_its_task_alone(database: Home) {
    let gate = Arc::new(Semaphore::new(0));
    let started = Arc::new(Notify::new());
    let beside = Beside(Arc::clone(&gate), Arc::clone(&started));
    let longhaul = open(&database)
        .await
        .register(Ends::default())
        .register(beside)
        .start()
        .await
        .unwrap();

    let beside = longhaul.submit::<Beside>(()).await.unwrap();
    started.notified().await;
    let panics = longhaul
        .submit::<Ends>(Plan {
            how: How::Panic,
            times: 2,
        })
        .await
        .unwrap();

    assert_eq!(panics.result().await.unwrap(), "attempt 3");
    assert_eq!(panics.task().await.unwrap().retry_count, 2);
    gate.add_permits(1);
    assert_eq!(beside.result().await.unwrap(), 1, "its first attempt");
    longhaul.stop().await;
}

async fn parameters_that_do_not_parse(database: Home) {
    let longhaul = open(&database)
        .await
        .register(Ends::default())
        .start()
        .await
        .unwrap();

    let json = longhaul::Json::parse("parameters", r#"{"how":"Nonsense"}"#).unwrap();
    let task = longhaul::NewTask::new("u-1", "ends", queue_name("free_default"), json);
    let id = longhaul.engine().submit(task).await.unwrap().task_id;
    let ended = longhaul.handle::<Ends>(id).ended().await.unwrap();
    assert_eq!((ended.status, ended.attempt), (Status::Failed, 1));
    assert_eq!(ended.error.unwrap().class, "invalid_parameters");
    longhaul.stop().await;
}

async fn an_attempt_that_takes_too_long_is_ended(database: Home) {
    let (result, task) = run(&database, How::Hang, 1).await;
    assert_eq!(result.unwrap(), "attempt 2");
    assert_eq!(task.retry_count, 1);
}

async fn a_snooze_uses_up_no_retry(database: Home) {
    let (result, task) = run(&database, How::Snooze, 6).await;
    assert_eq!(result.unwrap(), "attempt 7");
    assert_eq!((task.retry_count, task.snooze_count), (0, 6));
}

async fn a_result_that_is_too_large_is_a_failure(database: Home) {
    let (_, task) = run(&database, How::Huge, 1).await;
    assert_eq!(task.status, Status::Failed);
    assert_eq!(task.error.unwrap().class, "invalid_result");
}
