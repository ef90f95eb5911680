//! What `migrate` and `doctor` do about the servers beside the store, and a broker that is somebody else's.

use lapin::{options::QueueDeclareOptions, types::FieldTable};
use libtest_mimic::Trial;
use serde_json::Value;

use super::Fleet;
use crate::program::process::answer;
use crate::trial::once;

pub(crate) fn trials() -> Vec<Trial> {
    once![
        migrate_sets_the_broker_up_and_doctor_finds_it_so,
        a_broker_that_is_set_up_otherwise_is_refused,
        servers_that_are_away_or_wrong_are_told_without_their_passwords,
    ]
}

pub(super) fn state_of(report: &str, name: &str) -> String {
    let report: Value = serde_json::from_str(report.lines().next().unwrap()).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let found = checks
        .iter()
        .find(|check| check["name"] == name)
        .unwrap_or_else(|| panic!("no {name} in {report}"));
    found["state"].as_str().unwrap().to_owned()
}

async fn migrate_sets_the_broker_up_and_doctor_finds_it_so() {
    let fleet = Fleet::make().await;
    let early = fleet.run(&["doctor", "--json"]).await;
    assert_eq!(state_of(&early.out(), "broker"), "ok");
    assert_ne!(
        state_of(&early.out(), "topology"),
        "ok",
        "nothing is declared yet: {}",
        early.all()
    );
    answer(fleet.database.program(&["migrate"])).await.ok();
    // Asked twice: looking makes nothing.
    for _ in 0..2 {
        let told = fleet.run(&["migrate", "--check"]).await.failed();
        assert!(
            told.contains("is not set up: longhaul migrate does it")
                && told.contains("has no queue"),
            "{told}"
        );
    }
    let told = fleet.run(&["migrate"]).await.ok();
    assert!(
        told.contains("the broker is set up: 4 queues of tasks"),
        "{told}"
    );
    assert!(
        fleet
            .run(&["migrate", "--check"])
            .await
            .ok()
            .contains("the broker is set up")
    );
    let report = fleet.run(&["doctor", "--json"]).await.ok();
    for name in ["broker", "topology", "redis"] {
        assert_eq!(state_of(&report, name), "ok", "{report}");
    }
    assert!(
        ["ok", "warn"].contains(&state_of(&report, "eviction").as_str()),
        "{report}"
    );
}

async fn a_broker_that_is_set_up_otherwise_is_refused() {
    let fleet = Fleet::make().await;
    let channel = fleet
        .namespace
        .connection()
        .await
        .create_channel()
        .await
        .unwrap();
    let durable = QueueDeclareOptions {
        durable: true,
        ..QueueDeclareOptions::default()
    };
    let taken = fleet.namespace.full("free_default");
    channel
        .queue_declare(taken.as_str().into(), durable, FieldTable::default())
        .await
        .unwrap();
    for arguments in [
        &["serve", "--samples"][..],
        &["serve", "--roles", "api", "--samples"],
        &["migrate"],
    ] {
        let told = fleet.run(arguments).await.failed();
        assert!(told.contains("free_default"), "{arguments:?}: {told}");
    }
}

async fn servers_that_are_away_or_wrong_are_told_without_their_passwords() {
    let fleet = Fleet::make().await;
    let mut away = fleet.program(&["doctor"]);
    away.env("LONGHAUL_BROKER", "amqp://u:s3cret@127.0.0.1:1")
        .env("LONGHAUL_REDIS", "redis://:s3cret@127.0.0.1:1");
    let told = answer(away).await.failed();
    assert!(
        told.contains("fail  broker") && told.contains("fail  redis") && !told.contains("s3cret"),
        "{told}"
    );
    for (variable, value, allowed) in [
        ("LONGHAUL_BROKER", "kafka://u:s3cret@there", "amqp://"),
        ("LONGHAUL_REDIS", "memcached://u:s3cret@there", "redis://"),
        ("LONGHAUL_BROKER__LANES", "streams", "classic"),
    ] {
        let mut wrong = fleet.program(&["migrate"]);
        wrong.env(variable, value);
        let told = answer(wrong).await.failed();
        assert!(
            told.contains(allowed) && !told.contains("s3cret"),
            "{variable}: {told}"
        );
    }
}
