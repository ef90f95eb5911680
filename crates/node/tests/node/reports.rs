//! Reports that the store does not accept at once.

use std::sync::Arc;

use longhaul::{Invalid, Status, StoreError, TaskRecord};

use crate::memory_store::{Echo, on, store};

/// Runs one task while the store answers its reports so.
async fn ended(errors: Vec<StoreError>) -> TaskRecord {
    let store = Arc::new(store());
    store.refuse_finishes(errors);
    let longhaul = on(&store).register(Echo).start().await.unwrap();
    let task = longhaul
        .submit::<Echo>(1)
        .await
        .unwrap()
        .ended()
        .await
        .unwrap();

    longhaul.stop().await;
    task
}

fn failed() -> StoreError {
    StoreError::Internal("no such function: jsonb".to_owned())
}

fn invalid() -> StoreError {
    Invalid::new("result", "is odd", "something else").into()
}

#[tokio::test]
async fn a_store_that_fails_costs_no_result() {
    let task = ended(vec![failed(), failed(), StoreError::NodeLost, failed()]).await;
    assert_eq!((task.status, task.attempt), (Status::Completed, 1));
    assert_eq!(task.result.unwrap().as_str(), "1");
}

#[tokio::test]
async fn a_report_that_can_never_be_stored_is_a_failure_also_when_that_is_not_stored_at_once() {
    let task = ended(vec![invalid(), invalid(), failed(), failed()]).await;
    let error = task.error.unwrap();
    assert_eq!(
        (task.status, error.class.as_str()),
        (Status::Failed, "invalid_result")
    );
    assert!(error.message.contains("is odd"), "{}", error.message);
}
