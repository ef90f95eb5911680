//! The input of commands, and what they refuse.

use std::io::Write as _;

use libtest_mimic::Trial;
use longhaul::Status;
use serde_json::json;

use crate::database::Backend;
use crate::trial::once;
use crate::{commands::program::run_at, server::Server};

pub(crate) fn trials() -> Vec<Trial> {
    once![
        parameters_come_from_an_argument_a_file_or_a_pipe,
        the_same_idempotency_key_gives_the_same_task,
        a_task_can_be_scheduled,
        wrong_input_is_refused_with_what_is_allowed,
        an_unreachable_server_is_named_with_what_to_do,
        a_server_that_is_not_longhaul_is_detected,
        a_password_in_the_address_is_refused_and_not_shown
    ]
}

const MISSING: &str = "01900000-0000-7000-8000-000000000000";

async fn parameters_come_from_an_argument_a_file_or_a_pipe() {
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

async fn the_same_idempotency_key_gives_the_same_task() {
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

async fn a_task_can_be_scheduled() {
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

/// Arguments, the exit status, and what the error must contain.
const WRONG_INPUTS: &[(&[&str], i32, &[&str])] = &[
    (
        &["submit", "sample.echo", "{\"a\":"],
        1,
        &["not JSON", "line 1 column 5", "@file"],
    ),
    (
        &["submit", "sample.echo", "@/nowhere/at.all"],
        1,
        &["/nowhere/at.all", "cannot be read"],
    ),
    (
        &["submit", "sample.nope"],
        1,
        &["sample.nope", "sample.echo", "sample.fanout"],
    ),
    (
        &["submit", "sample.sleep", "{\"mss\":1}"],
        1,
        &["parameters.ms", "parameters.mss", "invalid_field"],
    ),
    (
        &["submit", "sample.echo", "--priority", "12"],
        1,
        &["priority is 12", "to 9"],
    ),
    (
        &["submit", "sample.echo", "--delay", "soon"],
        2,
        &["soon", "PT30S"],
    ),
    (
        &["submit", "sample.echo", "--run-at", "noon"],
        2,
        &["noon", "2026-03-01T08:30:00Z"],
    ),
    (
        &[
            "submit",
            "sample.echo",
            "--delay",
            "1s",
            "--run-at",
            "2099-01-01T00:00:00Z",
        ],
        2,
        &["cannot be used"],
    ),
    (&["get", "nope"], 2, &["nope", "not the id of a task"]),
    (&["get", MISSING], 1, &["task_not_found"]),
    (&["watch", MISSING], 1, &["task_not_found"]),
    (
        &["list", "--status", "sleeping"],
        2,
        &["sleeping", "dead-letter"],
    ),
    (&["list", "--size", "1000"], 1, &["size", "200"]),
    (&["list", "--cursor", "x"], 1, &["invalid_cursor"]),
    (&["cancel"], 2, &["required"]),
    (&["bench", "--tasks", "0"], 2, &["1..=1000000"]),
    (&["top"], 1, &["needs a terminal"]),
    (&["sumbit"], 2, &["submit"]),
    (
        &["list", "--url", "ftp://here"],
        1,
        &["ftp://here", "http://"],
    ),
    (&["list", "--token", "a\nb"], 1, &["the token", "header"]),
    (
        &["submit", "sample.echo", "--key", "a\nb"],
        1,
        &["the idempotency key", "header"],
    ),
];

async fn wrong_input_is_refused_with_what_is_allowed() {
    let server = Server::start(Backend::Sqlite).await;
    for (arguments, code, wanted) in WRONG_INPUTS {
        let output = server.run(arguments).await.refusal(*code);
        assert!(
            wanted.iter().all(|text| output.contains(text)),
            "{arguments:?} printed {output}, wanted {wanted:?}"
        );
    }
}

async fn an_unreachable_server_is_named_with_what_to_do() {
    let server = Server::start(Backend::Sqlite).await;
    let url = server.url();
    let id = server.run_submit(&["sample.echo"]).await;
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
        let output = run_at(&url, &arguments, None).await.refusal(1);
        assert!(
            output.contains(&url) && output.contains("`longhaul dev`"),
            "{arguments:?}: {output}"
        );
    }
}

async fn a_server_that_is_not_longhaul_is_detected() {
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

    let output = run_at(&url, &["list"], None).await.refusal(1);
    assert!(
        output.contains("404") && output.contains("right address"),
        "{output}"
    );
}

async fn a_password_in_the_address_is_refused_and_not_shown() {
    let output = run_at("http://u:s3cret@127.0.0.1:1", &["list"], None)
        .await
        .refusal(1);
    assert!(
        output.contains("http://127.0.0.1:1") && !output.contains("s3cret"),
        "{output}"
    );
}
