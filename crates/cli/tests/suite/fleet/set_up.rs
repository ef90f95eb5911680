//! What `migrate` and `doctor` do with RabbitMQ and Redis, and with queues that another program has
//! declared.

use lapin::{options::QueueDeclareOptions, types::FieldTable};
use libtest_mimic::Trial;
use serde_json::Value;

use super::Fleet;
use crate::program::process::answer;
use crate::trial::once;

pub(crate) fn trials() -> Vec<Trial> {
    once![
        migrate_declares_the_queues_and_doctor_confirms_it,
        queues_that_are_declared_differently_are_refused,
        unreachable_and_unsupported_servers_are_reported_without_passwords,
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

async fn migrate_declares_the_queues_and_doctor_confirms_it() {
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
    // Checked twice: a check creates nothing.
    for _ in 0..2 {
        let output = fleet.run(&["migrate", "--check"]).await.failed();
        assert!(
            output.contains("is not set up: longhaul migrate does it")
                && output.contains("has no queue"),
            "{output}"
        );
    }

    let output = fleet.run(&["migrate"]).await.ok();
    assert!(
        output.contains("the broker is set up: 4 task queues"),
        "{output}"
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

async fn queues_that_are_declared_differently_are_refused() {
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
        let output = fleet.run(arguments).await.failed();
        assert!(output.contains("free_default"), "{arguments:?}: {output}");
    }
}

async fn unreachable_and_unsupported_servers_are_reported_without_passwords() {
    let fleet = Fleet::make().await;
    let mut away = fleet.program(&["doctor"]);
    away.env("LONGHAUL_BROKER", "amqp://u:s3cret@127.0.0.1:1")
        .env("LONGHAUL_REDIS", "redis://:s3cret@127.0.0.1:1");

    let output = answer(away).await.failed();
    assert!(
        output.contains("fail  broker")
            && output.contains("fail  redis")
            && !output.contains("s3cret"),
        "{output}"
    );

    for (variable, value, allowed) in [
        ("LONGHAUL_BROKER", "kafka://u:s3cret@there", "amqp://"),
        ("LONGHAUL_REDIS", "memcached://u:s3cret@there", "redis://"),
        ("LONGHAUL_BROKER__LANES", "streams", "classic"),
    ] {
        let mut wrong = fleet.program(&["migrate"]);
        wrong.env(variable, value);
        let output = answer(wrong).await.failed();
        assert!(
            output.contains(allowed) && !output.contains("s3cret"),
            "{variable}: {output}"
        );
    }
}
