//! The output of commands: tables for users, the server's JSON for scripts.

use libtest_mimic::Trial;
use longhaul::Status;
use serde_json::json;

use crate::database::Backend;
use crate::trial::once;
use crate::{client::Call, server::Server};

pub(crate) fn trials() -> Vec<Trial> {
    once![
        json_is_the_servers_answer_unchanged,
        a_task_is_shown_with_its_main_fields,
        lists_are_filtered_and_have_one_line_per_task,
        why_prints_a_sentence_and_its_facts,
        each_user_has_their_own_tasks,
        bench_submits_its_tasks_and_prints_rates,
        completions_exist_for_every_shell_and_examples_for_every_command
    ]
}

async fn json_is_the_servers_answer_unchanged() {
    let server = Server::start(Backend::Sqlite).await;
    let answer = server
        .run(&["submit", "sample.echo", r#"{"n": 1.50}"#, "--json"])
        .await
        .json();
    let id = answer["taskId"].as_str().unwrap();

    server.until_status(id, Status::Completed).await;

    for (arguments, path) in [
        (vec!["get", id, "--json"], format!("/api/tasks/{id}")),
        (
            vec!["get", id, "--attempts", "--json"],
            format!("/api/tasks/{id}/attempts"),
        ),
        (
            vec!["get", id, "--logs", "--json"],
            format!("/api/tasks/{id}/logs"),
        ),
        (
            vec!["get", id, "--children", "--json"],
            format!("/api/tasks/{id}/children"),
        ),
        (vec!["why", id, "--json"], format!("/api/tasks/{id}/why")),
        (vec!["list", "--json"], "/api/tasks?size=50".to_owned()),
    ] {
        let printed = server.run(&arguments).await.expect(0);
        assert_eq!(
            printed.trim_end_matches('\n'),
            server.get(path).await.text,
            "{arguments:?}"
        );
    }

    assert!(
        server
            .run(&["get", id, "--json"])
            .await
            .expect(0)
            .contains("1.50"),
        "numbers keep their digits"
    );
}

async fn a_task_is_shown_with_its_main_fields() {
    let server = Server::start(Backend::Sqlite).await;
    let more = [
        "--priority",
        "7",
        "--task-key",
        "report-1",
        "--max-attempts",
        "2",
        "--timeout",
        "30s",
    ];

    let id = server
        .run_submit(&[&["sample.echo", r#"{"hello":"world"}"#], &more[..]].concat())
        .await;
    server.until_status(&id, Status::Completed).await;
    let shown = server.run(&["get", &id]).await.expect(0);

    for part in [
        &id,
        "sample.echo",
        "COMPLETED",
        "1 of 2",
        "priority 7",
        "report-1",
        "30s",
        "\"hello\": \"world\"",
    ] {
        assert!(shown.contains(part), "{part} in {shown}");
    }

    let failing = server
        .run_submit(&["sample.fail", r#"{"kind":"fatal"}"#])
        .await;
    server.until_status(&failing, Status::Failed).await;
    assert!(
        server
            .run(&["get", &failing])
            .await
            .expect(0)
            .contains("fatal: attempt 1 fails")
    );

    assert!(
        server
            .run(&["get", &failing, "--attempts"])
            .await
            .expect(0)
            .contains("failed")
    );

    assert!(
        server
            .run(&["get", &failing, "--logs"])
            .await
            .expect(0)
            .contains("warn")
    );
}

async fn lists_are_filtered_and_have_one_line_per_task() {
    let server = Server::start(Backend::Sqlite).await;
    let failing = server
        .run_submit(&["sample.fail", r#"{"kind":"fatal"}"#])
        .await;
    let later = server
        .run_submit(&["sample.echo", "--delay", "1d", "--queue", "own"])
        .await;
    server.until_status(&failing, Status::Failed).await;

    let lines = async |arguments: &[&str]| {
        let printed = server.run(&[&["list"], arguments].concat()).await.expect(0);
        printed
            .lines()
            .skip(1)
            .map(|line| line.split(' ').next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };

    assert_eq!(lines(&[]).await, [later.clone(), failing.clone()]);
    assert_eq!(
        lines(&["--oldest-first"]).await,
        [failing.clone(), later.clone()]
    );
    assert_eq!(
        lines(&["--oldest-first", "--size", "1"]).await,
        [failing.as_str()]
    );
    assert_eq!(
        lines(&["--status", "failed,dead-letter"]).await,
        [failing.as_str()]
    );
    assert_eq!(
        lines(&["--queue", "free_default", "--type", "sample.fail"]).await,
        [failing.as_str()]
    );
    assert_eq!(
        lines(&["--due-after", "2020-01-01T00:00:00Z", "--status", "QUEUED"]).await,
        [later.as_str()]
    );
    assert_eq!(
        lines(&["--status", "cancelled"]).await,
        Vec::<String>::new()
    );

    let table = server.run(&["list"]).await.expect(0);
    assert!(
        table.starts_with("ID ") && (table.contains("due in 2") || table.contains("due in 1d")),
        "{table}"
    );

    let first = server.run(&["list", "--size", "1", "--json"]).await.json();
    let next = lines(&[
        "--size",
        "1",
        "--cursor",
        first["nextCursor"].as_str().unwrap(),
    ])
    .await;
    assert_eq!(next, [failing]);
}

async fn why_prints_a_sentence_and_its_facts() {
    let server = Server::start(Backend::Sqlite).await;
    server
        .send(Call::new("POST", "/api/queues/vip_long/pause"))
        .await
        .expect(204);
    let id = server
        .run_submit(&["sample.echo", "--queue", "vip_long"])
        .await;
    let output = server.run(&["why", &id]).await.expect(0);
    assert!(
        output.contains("paused") && output.contains("queue"),
        "{output}"
    );
}

async fn each_user_has_their_own_tasks() {
    let server = Server::start(Backend::Sqlite).await;
    let id = server.run_submit(&["sample.echo", "--user", "u-1"]).await;
    server.run(&["get", &id, "--user", "u-1"]).await.expect(0);
    assert!(
        server
            .run(&["get", &id])
            .await
            .refusal(1)
            .contains("task_not_found")
    );
}

async fn bench_submits_its_tasks_and_prints_rates() {
    let server = Server::start(Backend::Sqlite).await;
    let output = server
        .run(&["bench", "--tasks", "20", "--clients", "3", "--json"])
        .await
        .json();
    assert_eq!(
        (&output["tasks"], &output["clients"]),
        (&json!(20), &json!(3))
    );
    assert!(
        output["submit"]["perSecond"].as_f64().unwrap() > 0.0
            && output["run"]["ms"].as_f64().unwrap() > 0.0
    );
    assert!(output["submit"]["p50Ms"].as_f64() <= output["submit"]["p99Ms"].as_f64());

    let all = server
        .get("/api/tasks?taskType=sample.echo&status=COMPLETED&size=200")
        .await
        .expect(200);
    assert_eq!(all["items"].as_array().unwrap().len(), 20);

    let shown = server
        .run(&["bench", "-n", "3", "-c", "1", "--no-wait"])
        .await
        .expect(0);
    assert!(
        shown.contains("3 tasks in") && shown.contains("p99") && !shown.contains("submit and run"),
        "{shown}"
    );
}

async fn completions_exist_for_every_shell_and_examples_for_every_command() {
    let server = Server::start(Backend::Sqlite).await;
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = server.run(&["completions", shell]).await.expect(0);
        assert!(
            script.contains("submit") && script.contains("failed-children"),
            "{shell}"
        );
    }

    let commands = [
        "submit",
        "get",
        "list",
        "watch",
        "cancel",
        "retry",
        "why",
        "top",
        "bench",
        "completions",
    ];

    for command in commands {
        let help = server.run(&[command, "--help"]).await.expect(0);
        assert!(
            help.contains("Example") && help.contains(&format!("longhaul {command}")),
            "{help}"
        );
    }

    let help = crate::commands::program::command(&server.url(), &["get", "--help"])
        .env("LONGHAUL_TOKEN", "sesame")
        .output();
    let help = String::from_utf8(help.await.unwrap().stdout).unwrap();
    assert!(!help.contains("sesame"), "the help must not show the token");
}
