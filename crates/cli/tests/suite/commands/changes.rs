//! Cancel and retry, of several tasks at once.

use libtest_mimic::Trial;
use longhaul::Status;
use serde_json::json;

use crate::database::Backend;
use crate::server::Server;
use crate::trial::once;

pub(crate) fn trials() -> Vec<Trial> {
    once![
        an_unknown_task_among_several_to_cancel_is_reported,
        a_failed_task_is_retried,
        only_failed_children_are_retried
    ]
}

const MISSING: &str = "01900000-0000-7000-8000-000000000000";

async fn an_unknown_task_among_several_to_cancel_is_reported() {
    let server = Server::start(Backend::Sqlite).await;
    let one = server.submit_for_later("default").await;
    let two = server.submit_for_later("default").await;
    let run = server.run(&["cancel", &one, MISSING, &two]).await;
    assert!(
        run.err.contains(MISSING) && run.err.contains("task_not_found"),
        "{run:?}"
    );
    assert_eq!(run.expect(1), format!("{one} cancelled\n{two} cancelled\n"));

    for id in [&one, &two] {
        assert_eq!(server.task(id).await["status"], "CANCELLED");
    }
}

async fn a_failed_task_is_retried() {
    let server = Server::start(Backend::Sqlite).await;
    let id = server
        .run_submit(&["sample.fail", r#"{"kind":"fatal","times":1}"#])
        .await;
    server.until_status(&id, Status::Failed).await;
    assert_eq!(
        server.run(&["retry", &id]).await.expect(0),
        format!("{id} QUEUED\n")
    );

    server.until_status(&id, Status::Completed).await;
    assert!(
        server.run(&["retry", &id]).await.refusal(1).contains(&id),
        "a task that completed is not run again"
    );
}

async fn only_failed_children_are_retried() {
    let server = Server::start(Backend::Sqlite).await;
    let id = server
        .run_submit(&["sample.fanout", r#"{"children":4,"failEvery":2}"#])
        .await;
    server.until_status(&id, Status::CompletedWithErrors).await;

    let answer = server
        .run(&["retry", &id, "--failed-children", "--json"])
        .await
        .json();
    assert_eq!(answer, json!({ "taskId": id, "status": "WAITING" }));
    server.until_status(&id, Status::CompletedWithErrors).await;

    let children = server
        .run(&["get", &id, "--children", "--json"])
        .await
        .json();
    let attempts: Vec<_> = children["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["attempt"].clone())
        .collect();
    assert_eq!(attempts, [1, 1, 2, 2]);
}
