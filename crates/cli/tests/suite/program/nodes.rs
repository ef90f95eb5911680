//! Nodes with different roles on one store.

use libtest_mimic::Trial;
use serde_json::json;

use crate::trial::once;
use crate::{
    database::{Backend, Database},
    program::process::Process,
};

pub(crate) fn trials() -> Vec<Trial> {
    once![
        an_api_node_and_a_worker_node_share_a_store,
        maintenance_without_a_worker_rescues_tasks_of_a_dead_node
    ]
}

async fn an_api_node_and_a_worker_node_share_a_store() {
    let database = Database::make(Backend::Postgres).await;
    let token = database.token("u-1").await;
    let api = database
        .start(&["serve", "--roles", "api", "--samples"])
        .await;
    let early = api.submit(&token, "sample.echo", json!(1)).await;

    assert_eq!(
        api.get(&token, "/api/nodes").await.1["items"]
            .as_array()
            .map(Vec::len),
        Some(0),
        "no worker runs yet"
    );

    let worker = database
        .start(&["worker", "--queues", "free_default=2", "--samples"])
        .await;
    assert_eq!(worker.greeting, "Longhaul is running (worker)");
    api.until(&token, &early, "COMPLETED").await;

    for n in 0..5 {
        let id = api.submit(&token, "sample.echo", json!(n)).await;
        api.until(&token, &id, "COMPLETED").await;
    }

    worker.stop().await;
    api.stop().await;
}

async fn maintenance_without_a_worker_rescues_tasks_of_a_dead_node() {
    let database = Database::make(Backend::Postgres).await;
    let token = database.token("u-1").await;
    let quick = |arguments: &[&str]| {
        let mut command = database.program(arguments);
        // Shorter than the defaults, and long enough that no node is declared dead when the machine
        // stalls for a moment.
        command
            .env("LONGHAUL_MAINTENANCE__LEASE", "6s")
            .env("LONGHAUL_MAINTENANCE__RESCUE_EVERY", "100ms");
        command
    };

    let api = Process::start(quick(&["serve", "--roles", "api,maintenance", "--samples"])).await;
    let killed = Process::start(quick(&["worker", "--samples"])).await;
    let id = api
        .submit(&token, "sample.sleep", json!({ "ms": 3_000_000 }))
        .await;

    api.until(&token, &id, "RUNNING").await;
    killed.signal("-KILL").await;
    drop(killed);

    // No node runs tasks now: the remaining one puts the task back into its queue.
    let task = api.until(&token, &id, "QUEUED").await;
    assert_eq!(task["attempt"], 1);
    api.stop().await;
}
