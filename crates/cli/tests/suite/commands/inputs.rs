//! What commands are told, and what they refuse.

use std::io::Write as _;

use libtest_mimic::Trial;
use longhaul::Status;
use serde_json::json;

use crate::database::Backend;
use crate::trial::once;
use crate::{commands::program::run_at, http::server::Server};

pub(crate) fn trials() -> Vec<Trial> {
    once![
        parameters_come_from_the_line_a_file_or_a_pipe,
        the_same_key_is_the_same_task,
        a_task_can_be_made_for_later,
        wrong_input_is_told_with_what_is_allowed,
        a_server_that_is_away_is_named_with_what_to_do,
        a_server_of_another_kind_is_noticed,
        a_password_in_the_address_is_refused_and_not_shown
    ]
}

const MISSING: &str = "01900000-0000-7000-8000-000000000000";

async fn parameters_come_from_the_line_a_file_or_a_pipe() {
    let server = Server::start(Backend::Sqlite).await;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(file, "{{\"from\":\"file\"}}").unwrap();
    let at_file = format!("@{}", file.path().display());
    let piped = run_at(
        &server.url(),
        &["submit", "sample.echo", "-"],
        Some("[1,\n2]"),
    )
    .await
    .expect(0);
    for (id, parameters) in [
        (server.run_submit(&["sample.echo"]).await, json!(null)),
        (
            server.run_submit(&["sample.echo", "\"text\""]).await,
            json!("text"),
        ),
        (
            server.run_submit(&["sample.echo", &at_file]).await,
            json!({ "from": "file" }),
        ),
        (piped.trim().to_owned(), json!([1, 2])),
    ] {
        assert_eq!(server.task(&id).await["parameters"], parameters);
    }
}

async fn the_same_key_is_the_same_task() {
    let server = Server::start(Backend::Sqlite).await;
    let first = server
        .run_submit(&["sample.echo", "1", "--key", "once"])
        .await;
    assert_eq!(
        server
            .run_submit(&["sample.echo", "1", "--key", "once"])
            .await,
        first
    );
    let refused = server
        .run(&["submit", "sample.echo", "2", "--key", "once"])
        .await
        .refusal(1);
    assert!(refused.contains("idempotency"), "{refused}");
}

async fn a_task_can_be_made_for_later() {
    let server = Server::start(Backend::Sqlite).await;
    let id = server
        .run_submit(&[
            "sample.echo",
            "--run-at",
            "2099-01-01T00:00:00Z",
            "--tier",
            "vip",
        ])
        .await;
    let task = server.task(&id).await;
    assert_eq!(
        (&task["runAt"], &task["tier"]),
        (&json!("2099-01-01T00:00:00Z"), &json!("vip"))
    );
}

async fn wrong_input_is_told_with_what_is_allowed() {
    let server = Server::start(Backend::Sqlite).await;
    for (arguments, code, parts) in [
        (
            vec!["submit", "sample.echo", "{\"a\":"],
            1,
            vec!["not JSON", "line 1 column 5", "@file"],
        ),
        (
            vec!["submit", "sample.echo", "@/nowhere/at.all"],
            1,
            vec!["/nowhere/at.all", "cannot be read"],
        ),
        (
            vec!["submit", "sample.nope"],
            1,
            vec!["sample.nope", "sample.echo", "sample.fanout"],
        ),
        (
            vec!["submit", "sample.sleep", "{\"mss\":1}"],
            1,
            vec!["parameters.ms", "parameters.mss", "invalid_field"],
        ),
        (
            vec!["submit", "sample.echo", "--priority", "12"],
            1,
            vec!["priority is 12", "to 9"],
        ),
        (
            vec!["submit", "sample.echo", "--delay", "soon"],
            2,
            vec!["soon", "PT30S"],
        ),
        (
            vec!["submit", "sample.echo", "--run-at", "noon"],
            2,
            vec!["noon", "2026-03-01T08:30:00Z"],
        ),
        (
            vec![
                "submit",
                "sample.echo",
                "--delay",
                "1s",
                "--run-at",
                "2099-01-01T00:00:00Z",
            ],
            2,
            vec!["cannot be used"],
        ),
        (vec!["get", "nope"], 2, vec!["nope", "not the id of a task"]),
        (vec!["get", MISSING], 1, vec!["task_not_found"]),
        (vec!["watch", MISSING], 1, vec!["task_not_found"]),
        (
            vec!["list", "--status", "sleeping"],
            2,
            vec!["sleeping", "dead-letter"],
        ),
        (vec!["list", "--size", "1000"], 1, vec!["size", "200"]),
        (vec!["list", "--cursor", "x"], 1, vec!["invalid_cursor"]),
        (vec!["cancel"], 2, vec!["required"]),
        (vec!["bench", "--tasks", "0"], 2, vec!["1..=1000000"]),
        (vec!["top"], 1, vec!["needs a terminal"]),
        (vec!["sumbit"], 2, vec!["submit"]),
        (
            vec!["list", "--url", "ftp://here"],
            1,
            vec!["ftp://here", "http://"],
        ),
        (
            vec!["list", "--token", "a\nb"],
            1,
            vec!["the token", "header"],
        ),
        (
            vec!["submit", "sample.echo", "--key", "a\nb"],
            1,
            vec!["the idempotency key", "header"],
        ),
    ] {
        let told = server.run(&arguments).await.refusal(code);
        assert!(
            parts.iter().all(|part| told.contains(part)),
            "{arguments:?} told {told}, wanted {parts:?}"
        );
    }
}

async fn a_server_that_is_away_is_named_with_what_to_do() {
    let server = Server::start(Backend::Sqlite).await;
    let (url, id) = (server.url(), server.run_submit(&["sample.echo"]).await);
    server.until_status(&id, Status::Completed).await;
    server.closing.cancel();
    server.serving.await.unwrap();
    for arguments in [
        vec!["list"],
        vec!["watch", &id],
        vec!["submit", "sample.echo"],
        vec!["cancel", &id],
        vec!["bench"],
    ] {
        let told = run_at(&url, &arguments, None).await.refusal(1);
        assert!(
            told.contains(&url) && told.contains("`longhaul dev`"),
            "{arguments:?}: {told}"
        );
    }
}

async fn a_server_of_another_kind_is_noticed() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.read(&mut [0; 4096]).await;
            let _ = socket
                .write_all(
                    b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno",
                )
                .await;
        }
    });
    let told = run_at(&url, &["list"], None).await.refusal(1);
    assert!(
        told.contains("404") && told.contains("right address"),
        "{told}"
    );
}

async fn a_password_in_the_address_is_refused_and_not_shown() {
    let told = run_at("http://u:s3cret@127.0.0.1:1", &["list"], None)
        .await
        .refusal(1);
    assert!(
        told.contains("http://127.0.0.1:1") && !told.contains("s3cret"),
        "{told}"
    );
}
