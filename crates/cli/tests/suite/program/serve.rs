//! `serve` from an empty store to a drained stop, on each of the three.

use libtest_mimic::Trial;
use serde_json::json;

use crate::database::{Backend, Database};
use crate::trial::{on_every_store, once};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = on_every_store![a_node_serves_drains_and_restarts];
    trials.extend(once![a_second_signal_ends_a_node_at_once]);
    trials
}

async fn a_node_serves_drains_and_restarts(backend: Backend) {
    let database = Database::make(backend).await;
    let token = database.token("u-1").await;
    let node = database.start(&["serve", "--samples"]).await;
    assert!(
        node.greeting.contains("(api, worker, maintenance)"),
        "{}",
        node.greeting
    );
    assert_eq!(node.ready().await, json!({ "status": "ok" }));

    assert_eq!(node.get("", "/api/tasks").await.0, 401);
    let echo = node.submit(&token, "sample.echo", json!({ "a": 1 })).await;
    let task = node.until(&token, &echo, "COMPLETED").await;
    assert_eq!(
        (&task["result"], &task["userId"]),
        (&json!({ "a": 1 }), &json!("u-1"))
    );

    // Long enough to be seen running, and well below the half minute of a drain.
    let sleeper = node
        .submit(&token, "sample.sleep", json!({ "ms": 6_000 }))
        .await;
    node.until(&token, &sleeper, "RUNNING").await;
    let later = node.submit(&token, "sample.echo", json!(2)).await;

    node.stop().await;
    let again = database.start(&["serve", "--samples"]).await;
    let drained = again.until(&token, &sleeper, "COMPLETED").await;
    assert_eq!(drained["attempt"], 1, "a running task could finish");
    again.until(&token, &later, "COMPLETED").await;
    again.stop().await;
}

async fn a_second_signal_ends_a_node_at_once() {
    let database = Database::make(Backend::Sqlite).await;
    let token = database.token("u-1").await;
    let mut node = database.start(&["serve", "--samples"]).await;
    let sleeper = node
        .submit(&token, "sample.sleep", json!({ "ms": 3_000_000 }))
        .await;

    node.until(&token, &sleeper, "RUNNING").await;
    node.signal("-TERM").await;
    node.logged("stopping").await;
    node.signal("-TERM").await;
    node.logged("stopped at once").await;
    node.ended().await;
}
