//! Submitting one task or many: fields, queues, times and idempotency keys.

use libtest_mimic::Trial;
use longhaul::Status;
use serde_json::{Value, json};

use crate::database::Backend;
use crate::trial::on_every_store;
use crate::{
    client::Call,
    server::{Server, default_retry},
};

pub(crate) fn trials() -> Vec<Trial> {
    on_every_store![
        a_submit_returns_the_location_of_a_durable_task,
        every_field_of_a_request_reaches_the_task,
        tier_and_expected_duration_decide_the_queue,
        a_scheduled_task_runs_at_its_time,
        the_same_key_returns_the_same_task_and_refuses_another_body,
        thirty_two_requests_with_one_key_create_one_task,
        a_batch_is_created_in_order_all_or_none
    ]
}

async fn a_submit_returns_the_location_of_a_durable_task(store: Backend) {
    let server = Server::start(store).await;
    let body = json!({ "taskType": "sample.echo", "parameters": { "a": [1, 2.50] } });
    let reply = server.post("/api/tasks", &body).await;
    let location = reply.headers["location"].clone();
    let answer = reply.expect(202);

    let id = answer["taskId"].as_str().unwrap();
    assert_eq!(
        (location.as_str(), &answer["status"]),
        (format!("/api/tasks/{id}").as_str(), &json!("QUEUED"))
    );
    server.until_ended(id).await;

    let task = server.get(location).await.expect(200);
    assert_eq!(
        (&task["status"], &task["result"]),
        (&json!("COMPLETED"), &json!({ "a": [1, 2.50] }))
    );
}

async fn every_field_of_a_request_reaches_the_task(store: Backend) {
    let server = Server::start(store).await;
    let more = json!({
        "priority": 7, "delay": "PT1H", "queue": "own", "tier": "vip", "expectedDuration": "5m",
        "maxAttempts": 3, "timeout": "30s", "taskKey": "order 7", "correlationId": "request-9"
    });
    let id = server
        .submit("sample.sleep", json!({ "ms": 5 }), more)
        .await;
    let task = server.task(&id).await;

    let wanted = json!({
        "taskId": id, "userId": "default", "taskType": "sample.sleep", "status": "QUEUED",
        "priority": 7, "queue": "own", "tier": "vip", "maxAttempts": 3, "timeout": "PT30S",
        "taskKey": "order 7", "correlationId": "request-9", "parameters": { "ms": 5 },
        "attempt": 0, "retryCount": 0, "snoozeCount": 0, "crashCount": 0, "version": 1,
        "phase": "run", "retryPolicy": default_retry(),
        "children": {
            "total": 0, "open": 0, "completed": 0, "withErrors": 0, "failed": 0, "cancelled": 0
        }
    });

    let absent = [
        "progress",
        "result",
        "resultUrl",
        "error",
        "errorMessage",
        "checkpoint",
        "memo",
        "parentTaskId",
        "nodeId",
        "host",
        "startedAt",
        "finishedAt",
        "lastAttemptAt",
        "deadline",
        "artifactExpiresAt",
        "artifactState",
    ];
    assert!(
        absent
            .iter()
            .all(|name| task.get(name) == Some(&Value::Null)),
        "{task}"
    );

    for (name, value) in wanted.as_object().unwrap() {
        assert_eq!(&task[name], value, "{name}");
    }

    let times = ["createdAt", "updatedAt", "runAt", "nextAttemptAt"];
    assert!(
        times
            .iter()
            .all(|name| task[name].as_str().unwrap().ends_with('Z')),
        "{task}"
    );

    assert!(task["runAt"].as_str() > task["createdAt"].as_str());
    assert!(task["traceContext"].is_string(), "the server makes one");
    assert_eq!(
        task.as_object().unwrap().len(),
        wanted.as_object().unwrap().len() + times.len() + absent.len() + 1
    );
}

async fn tier_and_expected_duration_decide_the_queue(store: Backend) {
    let server = Server::start(store).await;
    for (more, queue) in [
        (json!({ "tier": "enterprise" }), "enterprise_exclusive"),
        (
            json!({ "tier": "vip", "expectedDuration": "10s" }),
            "vip_short",
        ),
        (
            json!({ "tier": "vip", "expectedDuration": "PT10M" }),
            "vip_long",
        ),
        (json!({ "tier": "free" }), "free_default"),
        (json!({}), "free_default"),
    ] {
        let id = server.submit("sample.echo", Value::Null, more).await;
        assert_eq!(server.task(&id).await["queue"], queue);
    }
}

async fn a_scheduled_task_runs_at_its_time(store: Backend) {
    let server = Server::start(store).await;
    let more = json!({ "runAt": "2999-01-01T02:00:00+02:00" });
    let id = server.submit("sample.echo", Value::Null, more).await;
    assert_eq!(server.task(&id).await["runAt"], "2999-01-01T00:00:00Z");

    let id = server
        .submit(
            "sample.echo",
            Value::Null,
            json!({ "runAt": "2001-01-01T00:00:00Z" }),
        )
        .await;
    assert_eq!(
        server.until_ended(&id).await.status,
        Status::Completed,
        "a moment that has passed means now"
    );
}

async fn the_same_key_returns_the_same_task_and_refuses_another_body(store: Backend) {
    let server = Server::start(store).await;
    let body = json!({ "taskType": "sample.echo", "parameters": 1, "delay": "1h" });
    let with_key = |user: &str, body: &Value| {
        Call::post("/api/tasks", body)
            .user(user)
            .header("Idempotency-Key", "k")
    };
    let first = server.send(with_key("u-1", &body)).await;

    let again = server.send(with_key("u-1", &body)).await;
    assert_eq!(first.headers["location"], again.headers["location"]);
    assert_eq!(
        first.clone().expect(202),
        again.expect(202),
        "the same answer"
    );

    for (name, value) in [
        ("parameters", json!(2)),
        ("delay", json!("2h")),
        ("priority", json!(3)),
    ] {
        let mut other = body.clone();
        other[name] = value;
        server
            .send(with_key("u-1", &other))
            .await
            .problem(422, "idempotency_key_reused");
    }

    let elsewhere = server.send(with_key("u-2", &body)).await.expect(202);
    assert_ne!(
        elsewhere["taskId"],
        first.json()["taskId"],
        "a key is its owner's own"
    );
}

async fn thirty_two_requests_with_one_key_create_one_task(store: Backend) {
    let server = Server::start(store).await;
    let body = json!({ "taskType": "sample.echo", "parameters": { "a": 1 } });
    let call = Call::post("/api/tasks", &body).header("Idempotency-Key", "the one");
    let racing: Vec<_> = (0..32)
        .map(|_| {
            let call = call.clone();
            let address = server.address;
            tokio::spawn(async move { call.send(address).await.expect(202) })
        })
        .collect();

    let mut answers = Vec::new();
    for one in racing {
        answers.push(one.await.unwrap());
    }

    assert!(
        answers.iter().all(|answer| *answer == answers[0]),
        "{answers:?}"
    );
    assert_eq!(
        server.get("/api/tasks").await.expect(200)["items"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

async fn a_batch_is_created_in_order_all_or_none(store: Backend) {
    let server = Server::start(store).await;
    let one = |n: usize| json!({ "taskType": "sample.echo", "parameters": n, "delay": "1h" });
    let body = json!({ "tasks": (0..1_000).map(one).collect::<Vec<_>>() });
    let call = Call::post("/api/tasks/batch", &body).header("Idempotency-Key", "many");
    let answer = server.send(call.clone()).await.expect(202);

    let ids = answer["taskIds"].as_array().unwrap();
    assert_eq!(ids.len(), 1_000);
    assert_eq!(
        server.task(ids[999].as_str().unwrap()).await["parameters"],
        999
    );
    assert_eq!(
        server.send(call).await.expect(202),
        answer,
        "the same key is the same tasks"
    );

    let fewer = json!({ "tasks": [one(0)] });
    let call = Call::post("/api/tasks/batch", &fewer).header("Idempotency-Key", "many");
    server
        .send(call)
        .await
        .problem(422, "idempotency_key_reused");

    let with_a_bad_one =
        json!({ "tasks": [one(0), { "taskType": "sample.sleep", "parameters": { "ms": "5" } }] });
    let problem = server
        .send(Call::post("/api/tasks/batch", &with_a_bad_one).user("u-2"))
        .await;
    assert_eq!(
        problem.problem(422, "invalid_field")["field"],
        "tasks[1].parameters.ms"
    );

    let listed = server
        .send(Call::get("/api/tasks").user("u-2"))
        .await
        .expect(200);
    assert_eq!(listed["items"], json!([]));
    for count in [0, 1_001] {
        let body = json!({ "tasks": (0..count).map(one).collect::<Vec<_>>() });
        assert_eq!(
            server
                .post("/api/tasks/batch", &body)
                .await
                .problem(422, "invalid_field")["field"],
            "tasks"
        );
    }
}
