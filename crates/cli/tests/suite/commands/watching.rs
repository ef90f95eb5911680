//! `watch`: what it shows, how it ends, and that it reconnects.

use std::sync::Arc;

use libtest_mimic::Trial;
use longhaul::{
    Status, TaskId,
    server::{CancellationToken, IdentityMode, ListenerSettings},
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;

use crate::database::Backend;
use crate::trial::once;
use crate::{client::DEADLINE, commands::program::command, server::Server};

pub(crate) fn trials() -> Vec<Trial> {
    once![
        the_exit_status_says_how_the_task_ended,
        every_change_is_a_line_and_the_result_is_the_last,
        json_lines_are_the_events,
        a_watch_survives_a_restart_of_the_server
    ]
}

async fn the_exit_status_says_how_the_task_ended() {
    let server = Server::start(Backend::Sqlite).await;
    let later = server.submit_for_later("default").await;
    server.run(&["cancel", &later]).await.expect(0);

    for (arguments, code, end) in [
        (
            vec!["submit", "sample.echo", "{\"a\":1}", "--watch"],
            0,
            "COMPLETED after",
        ),
        (
            vec!["submit", "sample.fail", "{\"kind\":\"fatal\"}", "--watch"],
            3,
            "fatal: attempt 1 fails",
        ),
        (
            vec![
                "submit",
                "sample.fail",
                "{\"kind\":\"retryable\"}",
                "--max-attempts",
                "1",
                "--watch",
            ],
            3,
            "DEAD_LETTER after",
        ),
        (
            vec![
                "submit",
                "sample.fanout",
                "{\"children\":2,\"failEvery\":2}",
                "--watch",
            ],
            5,
            "COMPLETED_WITH_ERRORS after",
        ),
        (vec!["watch", &later], 4, "CANCELLED"),
    ] {
        let shown = server.run(&arguments).await.expect(code);
        assert!(shown.contains(end), "{arguments:?}: {shown}");
    }
}

async fn every_change_is_a_line_and_the_result_is_the_last() {
    let server = Server::start(Backend::Sqlite).await;
    let shown = server
        .run(&[
            "submit",
            "sample.progress",
            "{\"steps\":4,\"stepMs\":500}",
            "--watch",
        ])
        .await
        .expect(0);
    assert!(
        shown.contains("RUNNING attempt 1") && shown.contains("100% step 4 of 4"),
        "{shown}"
    );
    assert!(shown.ends_with("{\n  \"steps\": 4\n}\n"), "{shown}");
}

async fn json_lines_are_the_events() {
    let server = Server::start(Backend::Sqlite).await;
    let arguments = [
        "submit",
        "sample.progress",
        "{\"steps\":2,\"stepMs\":50}",
        "--watch",
        "--json",
    ];

    let printed = server.run(&arguments).await.expect(0);
    let lines: Vec<Value> = printed
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();

    let last = lines.last().unwrap();
    assert_eq!(
        (&lines[0]["status"], &last["status"]),
        (&json!("QUEUED"), &json!("COMPLETED"))
    );
    assert!(
        lines
            .iter()
            .all(|line| line["taskId"] == lines[0]["taskId"])
    );
}

async fn in_time<T>(result: impl Future<Output = std::io::Result<T>>) -> T {
    tokio::time::timeout(DEADLINE, result)
        .await
        .expect("a result in time")
        .unwrap()
}

async fn a_watch_survives_a_restart_of_the_server() {
    let mut server = Server::start(Backend::Sqlite).await;
    let id = server
        .submit("sample.sleep", json!({ "ms": 3_600_000 }), json!({}))
        .await;
    server.until_status(&id, Status::Running).await;
    let url = server.url();
    let mut watch = command(&url, &["watch", &id]).spawn().unwrap();
    let mut out = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut err = BufReader::new(watch.stderr.take().unwrap()).lines();

    let first = in_time(out.next_line()).await;
    assert!(first.unwrap().starts_with("RUNNING"));
    server.closing.cancel();
    (&mut server.serving).await.unwrap();
    let lost = in_time(err.next_line()).await;
    assert!(lost.unwrap().contains("trying again"));
    let again = TcpListener::bind(server.address).await.unwrap();
    let second = CancellationToken::new();

    let serving = tokio::spawn({
        let longhaul = Arc::clone(&server.longhaul);
        let second = second.clone();
        async move {
            longhaul
                .serve(
                    again,
                    IdentityMode::Dev,
                    ListenerSettings::default(),
                    second,
                )
                .await
                .unwrap()
        }
    });

    let seen = in_time(out.next_line()).await;
    assert!(
        seen.unwrap().starts_with("RUNNING"),
        "the state is shown again"
    );
    server
        .longhaul
        .cancel(TaskId(id.parse().unwrap()))
        .await
        .unwrap();

    let ended = in_time(watch.wait()).await;
    assert_eq!(ended.code(), Some(4));
    second.cancel();
    serving.await.unwrap();
}
