//! Cancel and retry, of several tasks at once.

use libtest_mimic::Trial;
use longhaul::Status;
use serde_json::json;

use crate::database::Backend;
use crate::http::server::Server;
use crate::trial::once;

pub(crate) fn trials() -> Vec<Trial> {
    once![
        several_are_cancelled_and_one_that_is_not_there_is_told,
        what_ended_badly_is_run_again,
        only_the_failed_children_are_run_again
    ]
}

const MISSING: &str = "01900000-0000-7000-8000-000000000000";

async fn several_are_cancelled_and_one_that_is_not_there_is_told() {
    let server = Server::start(Backend::Sqlite).await;
    let (one, two) = (
        server.submit_for_later("default").await,
        server.submit_for_later("default").await,
    );
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

async fn what_ended_badly_is_run_again() {
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

async fn only_the_failed_children_are_run_again() {
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
