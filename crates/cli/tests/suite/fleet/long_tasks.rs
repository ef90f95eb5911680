//! Tasks that run for longer than RabbitMQ waits for an acknowledgement. The test takes minutes, so
//! only `make test-long` runs it.

use std::time::Duration;

use futures::StreamExt as _;
use lapin::{
    BasicProperties, Connection, ConnectionProperties,
    options::{BasicConsumeOptions, BasicPublishOptions, QueueDeclareOptions},
    types::FieldTable,
};
use libtest_mimic::Trial;
use longhaul_testkit::own_server::OwnServer;
use serde_json::json;
use tokio::task::block_in_place;

use super::{Fleet, setting};
use crate::client::Call;
use crate::trial::once;

pub(crate) fn trials() -> Vec<Trial> {
    if setting("LONGHAUL_TEST_LONG").is_none() {
        return Vec::new();
    }
    once![a_task_may_outlast_the_acknowledgement_timeout_of_the_broker]
}

/// Three acknowledgement timeouts of the broker, and two of its checks.
const DEADLINE: Duration = Duration::from_secs(360);

async fn a_task_may_outlast_the_acknowledgement_timeout_of_the_broker() {
    const SHORT_TIMEOUT: &[(&str, &str)] = &[("LONGHAUL_TEST_CONSUMER_TIMEOUT", "60000")];

    let server = block_in_place(|| {
        OwnServer::start_with("rabbitmq", "rabbitmq-short-timeout", SHORT_TIMEOUT)
    });
    let full = Fleet::behind(&server.url).await;
    let spare = Fleet::behind(&server.url).await;

    // One worker is full while another task waits for it; the other worker has free slots and waits
    // for hints.
    let all = async {
        tokio::join!(
            complete(&full, "free_default=1", &[180_000, 1]),
            complete(&spare, "free_default=4", &[180_000]),
            never_acknowledges(&server.url)
        )
    };

    let ((), (), reply) = tokio::time::timeout(DEADLINE, all)
        .await
        .expect("an end in time");
    assert!(
        reply.contains("PRECONDITION_FAILED"),
        "the broker enforces its timeout: {reply}"
    );

    let log = server.home().join("log");
    let given_up = std::fs::read_to_string(&log)
        .unwrap()
        .matches("waiting for delivery acknowledgement")
        .count();
    assert_eq!(
        given_up,
        1,
        "only the consumer that never acknowledges: see {}",
        log.display()
    );
}

/// Runs tasks that sleep for these times, each submitted after the one before has started. Each
/// must complete at its first attempt.
async fn complete(fleet: &Fleet, slots: &str, sleeps_ms: &[u64]) {
    let token = fleet.database.token("u-1").await;
    let worker = async || {
        fleet
            .start(&["worker", "--samples", "--queues", slots])
            .await
    };
    let (api, _maintenance, _worker) = tokio::join!(fleet.api(), fleet.maintenance(), worker());

    for sleep_ms in sleeps_ms {
        let id = api
            .submit(&token, "sample.sleep", json!({ "ms": sleep_ms }))
            .await;
        if sleeps_ms.last() != Some(sleep_ms) {
            api.until(&token, &id, "RUNNING").await;
            continue;
        }

        let bearer = format!("Bearer {token}");
        let events = Call::get(format!("/api/tasks/{id}/events")).header("Authorization", &bearer);
        let mut events = events.follow(api.address()).await;
        while events.next().await.expect("the stream is open").data["status"] != "COMPLETED" {}
    }

    let (_, tasks) = api.get(&token, "/api/tasks").await;
    let tasks = tasks["items"].as_array().unwrap();
    assert_eq!(tasks.len(), sleeps_ms.len());
    assert!(
        tasks
            .iter()
            .all(|task| task["status"] == "COMPLETED" && task["attempt"] == 1),
        "{tasks:?}"
    );
}

/// A consumer that takes a message and never acknowledges it. Returns the broker's error.
async fn never_acknowledges(url: &str) -> String {
    let connection = Connection::connect(url, ConnectionProperties::default())
        .await
        .unwrap();
    let channel = connection.create_channel().await.unwrap();
    let options = QueueDeclareOptions {
        exclusive: true,
        ..QueueDeclareOptions::default()
    };
    let queue = channel
        .queue_declare("".into(), options, FieldTable::default())
        .await
        .unwrap()
        .name()
        .clone();

    let properties = BasicProperties::default();
    channel
        .basic_publish(
            "".into(),
            queue.clone(),
            BasicPublishOptions::default(),
            b"?",
            properties,
        )
        .await
        .unwrap();

    let consume = channel.basic_consume(
        queue,
        "".into(),
        BasicConsumeOptions::default(),
        FieldTable::default(),
    );

    let mut consumer = consume.await.unwrap();
    loop {
        match consumer.next().await {
            Some(Ok(_)) => {}
            Some(Err(error)) => return error.to_string(),
            None => return "the consumer ended".to_owned(),
        }
    }
}
