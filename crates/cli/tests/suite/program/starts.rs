//! How options and configuration take effect when the program starts.

use std::process::Stdio;

use libtest_mimic::Trial;
use serde_json::Value;
use tokio::{net::TcpListener, process::Command};

use super::process::{DEADLINE, Process, answer};
use crate::database::{Backend, Database};
use crate::trial::once;

pub(crate) fn trials() -> Vec<Trial> {
    once![
        a_node_that_waits_for_its_store_can_be_stopped,
        a_task_of_another_process_can_be_watched,
        configured_limits_override_those_of_an_application,
        a_node_without_task_types_warns,
        commands_print_plain_errors,
        tasks_of_an_application_have_the_tier_of_its_caller,
        a_closed_pipe_is_not_a_failure
    ]
}

async fn a_node_that_waits_for_its_store_can_be_stopped() {
    let database = Database::make(Backend::Sqlite).await;
    // It accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut command = database.program(&["serve"]);
    command.env(
        "LONGHAUL_STORE",
        format!("postgres://u@{}/tasks", silent.local_addr().unwrap()),
    );
    let mut node = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();

    let _open = tokio::time::timeout(DEADLINE, silent.accept())
        .await
        .expect("a connection in time")
        .unwrap();

    let id = node.id().expect("it runs").to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &id])
            .status()
            .await
            .unwrap()
            .success()
    );

    let ended = tokio::time::timeout(DEADLINE, node.wait())
        .await
        .expect("an end in time")
        .unwrap();
    assert!(ended.success(), "{ended}");
}

async fn a_task_of_another_process_can_be_watched() {
    let database = Database::make(Backend::Postgres).await;
    let token = database.token("u-1").await;
    let api = database
        .start(&["serve", "--roles", "api", "--samples"])
        .await;
    let worker = database.start(&["worker", "--samples"]).await;
    let steps = r#"{"steps":4,"stepMs":2000}"#;
    let mut submit = database.program(&["submit", "sample.progress", steps, "--watch"]);

    submit
        .env("LONGHAUL_URL", api.url(""))
        .env("LONGHAUL_TOKEN", &token);
    let output = answer(submit).await.ok();

    // Which steps are seen depends on when the server is polled.
    let is_printed = |step: u32| {
        output.contains(&format!(
            "RUNNING attempt 1 {}% step {step} of 4",
            step * 25
        ))
    };
    assert!(
        (1..4).any(is_printed) && output.contains("COMPLETED"),
        "{output}"
    );
    worker.stop().await;

    api.stop().await;
}

async fn configured_limits_override_those_of_an_application() {
    let database = Database::make(Backend::Sqlite).await;
    let limit = "[limits.\"offline/steady\"]\nrate = 1\nper = \"1h\"\n";
    std::fs::write(database.folder.path().join("longhaul.toml"), limit).unwrap();
    let token = database.token("u-1").await;
    let node = Process::start(database.program(&["serve", "--samples"])).await;
    let (status, _) = node.post(&token, "/novel/api/novels/sample").await;

    assert_eq!(status, 202);
    // One call per hour, so that the other tasks wait.
    let waiting = "/api/tasks?taskType=generate_summary&status=RETRYING";
    let has_some = |page: &Value| {
        page["items"]
            .as_array()
            .is_some_and(|items| !items.is_empty())
    };

    node.until_value(&token, ("/api/events", waiting), has_some)
        .await;
    node.stop().await;
}

async fn a_node_without_task_types_warns() {
    let database = Database::make(Backend::Sqlite).await;
    let mut node = database.start(&["serve"]).await;
    node.logged("--samples").await;
    node.stop().await;
}

async fn commands_print_plain_errors() {
    let database = Database::make(Backend::Sqlite).await;
    let output = database
        .run(&["token", "create", "--owner", "u-1", "--scopes", "all"])
        .await
        .failed();
    assert!(
        output.starts_with("error: there is no scope \"all\"; allowed: tasks:read"),
        "{output}"
    );
    let output = database.run(&["migrate", "--check"]).await.failed();
    assert!(output.starts_with("error: "), "{output}");
}

async fn tasks_of_an_application_have_the_tier_of_its_caller() {
    let database = Database::make(Backend::Sqlite).await;
    let token = database
        .run(&["token", "create", "--owner", "u-1", "--tier", "vip"])
        .await
        .ok();
    let node = database.start(&["serve", "--samples"]).await;
    let (_, imported) = node.post(token.trim(), "/novel/api/novels/sample").await;
    let path = format!("/api/tasks/{}", imported["taskId"].as_str().unwrap());
    let (_, task) = node.get(token.trim(), &path).await;

    assert_eq!(
        (task["tier"].as_str(), task["queue"].as_str()),
        (Some("vip"), Some("vip_long")),
        "{task}"
    );
    node.stop().await;
}

async fn a_closed_pipe_is_not_a_failure() {
    let database = Database::make(Backend::Sqlite).await;
    for arguments in [
        "doctor",
        "migrate",
        "token create --owner u-1",
        "token list --json",
    ] {
        let script = format!(
            "set -o pipefail; {} {arguments} | true",
            env!("CARGO_BIN_EXE_longhaul")
        );

        let mut shell = Command::new("bash");
        shell
            .args(["-c", &script])
            .current_dir(database.folder.path())
            .kill_on_drop(true);
        shell
            .env("LONGHAUL_STORE", &database.url)
            .env("LONGHAUL_LISTEN", "127.0.0.1:0");

        let output = answer(shell).await;
        assert!(!output.all().contains("panicked"), "{}", output.all());
        output.ok();
    }
}
