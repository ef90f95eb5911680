//! `doctor` finds what is wrong and says what to do.

use libtest_mimic::Trial;
use serde_json::Value;
use sqlx::{Connection as _, Executor as _};

use crate::trial::{on_every_store, once};
use crate::{
    database::{Backend, Database},
    program::process::answer,
};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = on_every_store![doctor_finds_nothing_wrong_with_a_healthy_node];
    trials.extend(once![
        doctor_reports_problems_with_advice,
        doctor_reports_a_store_whose_clock_is_ahead,
        doctor_reports_a_file_that_is_no_store,
        doctor_reports_a_database_that_was_taken_from_beside_its_log
    ]);
    trials
}

fn check(report: &Value, name: &str) -> (String, String) {
    let checks = report["checks"].as_array().unwrap().iter();
    let found = checks
        .clone()
        .find(|check| check["name"] == name)
        .unwrap_or_else(|| panic!("no {name} in {report}"));

    (
        found["state"].as_str().unwrap().to_owned(),
        found["found"].as_str().unwrap().to_owned(),
    )
}

async fn doctor_finds_nothing_wrong_with_a_healthy_node(backend: Backend) {
    let database = Database::make(backend).await;
    database.token("u-1").await;
    let report: Value =
        serde_json::from_str(&database.run(&["doctor", "--json"]).await.ok()).unwrap();

    for name in [
        "configuration",
        "exposure",
        "port",
        "store",
        "schema",
        "clock",
        "tokens",
        "artifacts",
    ] {
        assert_eq!(check(&report, name).0, "ok", "{report}");
    }

    assert!(
        ["ok", "warn"].contains(&check(&report, "durability").0.as_str()),
        "{report}"
    );
    let lines = database.run(&["doctor"]).await.ok();
    assert!(lines.contains("ok    schema"), "{lines}");
}

async fn doctor_reports_problems_with_advice() {
    let database = Database::make(Backend::Sqlite).await;
    std::fs::write(
        database.folder.path().join("longhaul.toml"),
        "[worker]\nslotz = 1\n",
    )
    .unwrap();
    let output = database.run(&["doctor"]).await.failed();
    assert!(
        output.contains("fail  configuration") && output.contains("did you mean worker.slots"),
        "{output}"
    );
    std::fs::remove_file(database.folder.path().join("longhaul.toml")).unwrap();

    // Another process has the port and does not answer.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = database.program(&["doctor", "--json"]);
    command.env("LONGHAUL_LISTEN", taken.local_addr().unwrap().to_string());
    let output = answer(command).await;
    let report: Value = serde_json::from_str(output.out().lines().next().unwrap()).unwrap();
    output.failed();
    assert_eq!(
        (check(&report, "port").0.as_str(), report["state"].as_str()),
        ("fail", Some("fail"))
    );
    assert!(
        !database.folder.path().join("data").exists(),
        "a check creates nothing"
    );

    let mut away = database.program(&["doctor"]);
    away.env("LONGHAUL_STORE", "postgres://u:s3cret@127.0.0.1:1/tasks");
    let output = answer(away).await.failed();
    assert!(
        output.contains("fail  store")
            && output.contains("postgres://u:***@")
            && !output.contains("s3cret"),
        "{output}"
    );
}

/// Runs a statement as another program would.
async fn execute(database: &Database, statement: &'static str) {
    let connection = sqlx::SqliteConnection::connect(&database.url).await;
    let mut connection = connection.unwrap();
    connection.execute(statement).await.unwrap();
    connection.close().await.unwrap();
}

/// The node's process reads the clock of its store. Its heartbeats are what others see of it.
async fn doctor_reports_a_store_whose_clock_is_ahead() {
    let database = Database::make(Backend::Sqlite).await;
    database.token("u-1").await;
    let ahead = "INSERT INTO nodes (id, name, host, started_at, heartbeat_at) \
                 VALUES (zeroblob(16), 'n', 'h', 0, (unixepoch() + 3600) * 1000000)";
    execute(&database, ahead).await;

    let report = database.run(&["doctor", "--json"]).await.ok();
    let (state, found) = check(&serde_json::from_str(&report).unwrap(), "clock");
    assert_eq!(state, "warn", "{report}");
    assert!(
        found.starts_with("the store is 3") && found.contains("ms ahead of this machine"),
        "{found}"
    );
}

async fn doctor_reports_a_database_that_was_taken_from_beside_its_log() {
    let database = Database::make(Backend::Sqlite).await;
    database.token("u-1").await;
    let file = database.url.strip_prefix("sqlite://").unwrap();
    std::fs::remove_file(file).unwrap();
    std::fs::write(format!("{file}-wal"), "commits").unwrap();

    let output = database.run(&["doctor"]).await.failed();
    assert!(
        output.contains("fail  store") && output.contains("put the database back"),
        "{output}"
    );
    assert!(!std::path::Path::new(file).exists(), "nothing is made");
}

async fn doctor_reports_a_file_that_is_no_store() {
    let database = Database::make(Backend::Sqlite).await;
    database.token("u-1").await;
    execute(&database, "DROP TABLE outbox").await;
    let output = database.run(&["doctor"]).await.failed();
    assert!(
        output.contains("no such table: outbox") && output.contains("restore a backup"),
        "{output}"
    );

    let file = database.url.strip_prefix("sqlite://").unwrap();
    for suffix in ["-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{file}{suffix}"));
    }
    std::fs::write(file, "a text").unwrap();
    let output = database.run(&["doctor"]).await.failed();
    assert!(
        output.contains("fail  store") && output.contains("is not a SQLite database"),
        "{output}"
    );
    assert_eq!(std::fs::read_to_string(file).unwrap(), "a text");
}
