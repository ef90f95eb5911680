//! The seam between node and handler: a type whose code runs on a thread of its own and reaches the
//! node only by messages.

use std::sync::Arc;

use longhaul::{Status, testing::TestLonghaul};
use longhaul_domain::{
    Json,
    contract::store::{AttemptEnd, Failure},
};
use longhaul_sdk::testing::{RemoteAttempt, ThreadHandler};
use serde_json::{Value, json};
use tokio::sync::mpsc;

const REMOTE: &str = "remote";

fn longhaul(script: impl Fn(&RemoteAttempt) -> AttemptEnd + Send + Sync + 'static) -> TestLonghaul {
    let handler = Arc::new(ThreadHandler::new(REMOTE, script));
    TestLonghaul::new()
        .configure(|builder| builder.register_handler(handler))
        .start()
}

fn completed(result: &Value) -> AttemptEnd {
    AttemptEnd::Completed {
        result: Json::from_value("result", result).ok(),
        result_url: None,
    }
}

fn failed(retry_in_ms: Option<u64>) -> AttemptEnd {
    AttemptEnd::Failed {
        failure: Failure {
            class: "remote".to_owned(),
            message: "out of paper".to_owned(),
            detail: None,
        },
        retry_in_ms,
    }
}

#[tokio::test]
async fn a_task_completes_with_the_result_of_its_thread() {
    let longhaul = longhaul(|attempt| {
        let number: u64 = attempt.parameters.read().unwrap();
        completed(&json!(number * 2))
    });
    let handle = longhaul
        .submit_named::<_, u64>(REMOTE, 21_u64)
        .await
        .unwrap();

    longhaul.run_until_idle().await;
    assert_eq!(longhaul.result(&handle), 42);
}

#[tokio::test]
async fn a_task_fails_with_the_failure_of_its_thread() {
    let longhaul = longhaul(|_| failed(None));
    let handle = longhaul.submit_named::<_, ()>(REMOTE, ()).await.unwrap();

    longhaul.run_until_idle().await;
    let record = longhaul.record(&handle);
    assert_eq!(record.status, Status::Failed);
    assert_eq!(record.error.unwrap().message, "out of paper");
}

#[tokio::test]
async fn a_thread_that_panics_fails_its_task() {
    let longhaul = longhaul(|_| panic!("no answer"));
    let handle = longhaul.submit_named::<_, ()>(REMOTE, ()).await.unwrap();

    longhaul.run_until_idle().await;
    assert_eq!(longhaul.record(&handle).error.unwrap().class, "thread_died");
}

#[tokio::test]
async fn a_retry_starts_from_the_checkpoint_of_the_thread_before() {
    let longhaul = longhaul(|attempt| match &attempt.checkpoint {
        None => {
            let checkpoint = Json::from_value("checkpoint", &"half").unwrap();
            attempt.save_checkpoint(checkpoint).unwrap();
            failed(Some(0))
        }
        Some(checkpoint) => completed(&checkpoint.read::<Value>().unwrap()),
    });
    let handle = longhaul
        .submit_named::<_, String>(REMOTE, ())
        .await
        .unwrap();

    longhaul.run_until_idle().await;
    assert_eq!(longhaul.result(&handle), "half");
    assert_eq!(longhaul.record(&handle).attempt, 2);
}

#[tokio::test]
async fn progress_and_output_of_a_thread_are_stored_with_the_task() {
    let longhaul = longhaul(|attempt| {
        attempt.progress(100.0).unwrap();
        attempt.emit("all pages").unwrap();
        completed(&Value::Null)
    });
    let handle = longhaul.submit_named::<_, ()>(REMOTE, ()).await.unwrap();

    longhaul.run_until_idle().await;
    let progress = handle.progress().await.unwrap().unwrap();
    assert_eq!(progress.percent.to_string(), "100");
    let streams = &longhaul.sdk_client().streams;
    let output = streams.read(handle.id(), 0, 10).await.unwrap();
    assert!(format!("{:?}", output.entries).contains("all pages"));
}

#[tokio::test]
async fn a_cancel_reaches_a_running_thread() {
    let (started, mut starts) = mpsc::unbounded_channel();
    let longhaul = longhaul(move |attempt| {
        started.send(()).unwrap();
        while !attempt.must_stop() {
            std::thread::yield_now();
        }

        assert!(attempt.progress(50.0).is_err(), "it may write nothing more");
        AttemptEnd::Cancelled
    });
    let handle = longhaul.submit_named::<_, ()>(REMOTE, ()).await.unwrap();

    let cancel = async {
        starts.recv().await.unwrap();
        handle.cancel().await.unwrap();
    };
    tokio::join!(longhaul.run_until_idle(), cancel);
    assert_eq!(longhaul.record(&handle).status, Status::Cancelled);
}
