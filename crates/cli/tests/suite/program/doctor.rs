//! `doctor` finds what is wrong and says what to do.

use libtest_mimic::Trial;
use serde_json::Value;

use crate::trial::{on_every_store, once};
use crate::{
    database::{Backend, Database},
    program::process::answer,
};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = on_every_store![doctor_finds_nothing_wrong_with_a_healthy_node];
    trials.extend(once![doctor_reports_problems_with_advice]);
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
