//! Queues, nodes, types and statistics, and why a task does not run.

use libtest_mimic::Trial;
use longhaul::{Json, NewTask, Status};
use longhaul_domain::contract::store::TaskCommands as _;
use longhaul_testkit::names::queue_name;
use serde_json::{Value, json};

use crate::database::Backend;
use crate::trial::on_every_store;
use crate::{client::Call, readiness::readiness, server::Server, tokens::with};

pub(crate) fn trials() -> Vec<Trial> {
    on_every_store![
        a_paused_queue_starts_no_tasks_and_explains_why,
        a_task_explains_why_it_is_not_running,
        a_task_that_no_node_serves_explains_why_and_nodes_list_what_they_run,
        only_operators_see_which_queues_are_served,
        a_node_that_runs_nothing_has_free_slots,
        types_are_listed_with_their_schemas,
        statistics_count_ends_by_attempt,
        nodes_health_and_the_openapi_document_are_served,
        a_checkpoint_is_stored_and_shown,
        a_rate_limited_task_is_requeued_without_using_a_retry,
        a_task_without_a_free_slot_shows_how_many_are_ahead
    ]
}

async fn a_paused_queue_starts_no_tasks_and_explains_why(store: Backend) {
    let server = Server::start(store).await;
    let queue = |what: &str| Call::new("POST", format!("/api/queues/free_default/{what}"));
    server.send(queue("pause")).await.expect(204);

    let id = server.submit("sample.echo", json!(1), json!({})).await;
    let why = server.get(format!("/api/tasks/{id}/why")).await.expect(200);
    assert_eq!(
        (&why["reason"], &why["facts"]["queue"]),
        (&json!("paused"), &json!("free_default"))
    );

    let queues = server.get("/api/queues").await.expect(200);
    let row = queues["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|queue| queue["name"] == "free_default")
        .unwrap();
    assert_eq!(
        (&row["paused"], &row["tasks"]),
        (&json!(true), &json!({ "QUEUED": 1 }))
    );
    assert!(row["pausedAt"].is_string());
    server.send(queue("resume")).await.expect(204);
    server.until_status(&id, Status::Completed).await;

    let why = server.get(format!("/api/tasks/{id}/why")).await.expect(200);
    assert_eq!(why["reason"], "ended");
}

async fn a_task_that_no_node_serves_explains_why_and_nodes_list_what_they_run(store: Backend) {
    let server = Server::start_with_slots(store, 3).await;
    let nodes = server.get("/api/nodes").await.expect(200);
    let node = &nodes["items"][0];
    assert_eq!(node["slots"], 3);
    assert!(
        node["taskTypes"]
            .as_array()
            .unwrap()
            .contains(&json!("sample.echo")),
        "{node}"
    );

    assert!(
        node["queues"]
            .as_array()
            .unwrap()
            .contains(&json!("free_default")),
        "{node}"
    );

    // The store accepts tasks that no node runs: a type of a later version, a queue of other
    // workers.
    let why = async |task_type: &str, queue: &str| {
        let task = NewTask::new(
            "default",
            task_type,
            queue_name(queue),
            Json::parse("parameters", "1").unwrap(),
        );

        let store = server.store_of_another_process().await;
        let id = store.submit_task(task).await.unwrap().task_id;

        server.get(format!("/api/tasks/{id}/why")).await.expect(200)
    };

    let answer = why("sample.echo", "elsewhere").await;
    assert_eq!(
        (&answer["reason"], &answer["facts"]["queue"]),
        (&json!("queue_not_served"), &json!("elsewhere")),
        "{answer}"
    );
    assert_eq!(answer["facts"]["servedQueues"], node["queues"]);
    assert_eq!(
        why("test.unserved", "free_default").await["reason"],
        "no_worker"
    );
}

async fn only_operators_see_which_queues_are_served(store: Backend) {
    let server = Server::with_tokens(store).await;
    let caller = server
        .token(71, "u-1", &["tasks:read", "tasks:write"], None, 3_600_000)
        .await;
    let operator = server
        .token(72, "u-1", &["tasks:read", "operate"], None, 3_600_000)
        .await;
    let body = json!({ "taskType": "sample.echo", "parameters": 1, "queue": "own" });
    let made = server
        .send(with(Call::post("/api/tasks", &body), &caller))
        .await
        .expect(202);

    let path = format!("/api/tasks/{}/why", made["taskId"].as_str().unwrap());
    let answer = server
        .send(with(Call::get(&path), &caller))
        .await
        .expect(200);
    assert_eq!(
        (&answer["reason"], &answer["facts"]["servedQueues"]),
        (&json!("queue_not_served"), &Value::Null),
        "{answer}"
    );

    let answer = server
        .send(with(Call::get(&path), &operator))
        .await
        .expect(200);
    assert!(
        answer["facts"]["servedQueues"]
            .as_array()
            .unwrap()
            .contains(&json!("free_default")),
        "{answer}"
    );
}

async fn a_node_that_runs_nothing_has_free_slots(store: Backend) {
    let server = Server::with_maintenance_only(store).await;
    let id = server.submit("sample.echo", json!(1), json!({})).await;
    let why =
        async || server.get(format!("/api/tasks/{id}/why")).await.expect(200)["reason"].clone();
    assert_eq!(why().await, "no_node", "the node runs no tasks");
    server.register_node_of_another_process().await;

    assert_eq!(why().await, "in_line", "the other node may have slots");
}

async fn a_task_explains_why_it_is_not_running(store: Backend) {
    let server = Server::start(store).await;
    let later = server.submit_for_later("default").await;
    let why = server
        .get(format!("/api/tasks/{later}/why"))
        .await
        .expect(200);
    assert_eq!(
        (&why["reason"], &why["facts"]["dueAt"]),
        (&json!("not_due"), &server.task(&later).await["runAt"])
    );
    assert!(
        why["sentence"]
            .as_str()
            .unwrap()
            .starts_with("It is due at ")
    );

    let unserved = server
        .submit("sample.echo", json!(1), json!({ "queue": "own" }))
        .await;
    let why = server
        .get(format!("/api/tasks/{unserved}/why"))
        .await
        .expect(200);
    assert_eq!(
        (&why["reason"], &why["facts"]["queue"]),
        (&json!("queue_not_served"), &json!("own")),
        "{why}"
    );

    // A node that does not list its types may run any.
    server.register_node_of_another_process().await;

    let why = server
        .get(format!("/api/tasks/{unserved}/why"))
        .await
        .expect(200);
    assert_eq!(
        (&why["reason"], &why["facts"]["othersWaiting"]),
        (&json!("in_line"), &json!(0))
    );
    assert_eq!(why["facts"]["ahead"], 0);

    let parent = server
        .submit(
            "sample.fanout",
            json!({ "children": 2, "childMs": 3_600_000 }),
            json!({}),
        )
        .await;

    server.until_status(&parent, Status::Waiting).await;

    let why = server
        .get(format!("/api/tasks/{parent}/why"))
        .await
        .expect(200);
    assert_eq!(
        (&why["reason"], &why["facts"]["openChildren"]),
        (&json!("waits_for_children"), &json!(2))
    );
    server
        .send(Call::new("DELETE", format!("/api/tasks/{parent}")))
        .await
        .expect(204);
}

async fn types_are_listed_with_their_schemas(store: Backend) {
    let server = Server::start(store).await;
    let types = server.get("/api/types").await.expect(200);
    let names: Vec<&str> = types["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["taskType"].as_str().unwrap())
        .collect();

    let wanted = [
        "artifact",
        "checkpoint",
        "echo",
        "fail",
        "fanout",
        "progress",
        "sleep",
        "stream",
    ];
    assert_eq!(
        names[..wanted.len()],
        wanted.map(|name| format!("sample.{name}"))
    );

    let sleep = &types["items"][6];
    assert_eq!(
        (&sleep["parameters"]["required"], &sleep["maxAttempts"]),
        (&json!(["ms"]), &json!(5))
    );
}

async fn statistics_count_ends_by_attempt(store: Backend) {
    let server = Server::start(store).await;
    let one = server.submit("sample.echo", json!(1), json!({})).await;
    let two = server
        .submit(
            "sample.fail",
            json!({ "kind": "retryable", "times": 1, "retryAfterMs": 1 }),
            json!({}),
        )
        .await;

    server.until_status(&one, Status::Completed).await;
    server.until_status(&two, Status::Completed).await;
    let stats = server.get("/api/stats").await.expect(200);
    assert_eq!(stats["tasks"], json!({ "COMPLETED": 2 }));

    let row = |name: &str| {
        stats["types"]
            .as_array()
            .unwrap()
            .iter()
            .find(|row| row["taskType"] == name)
            .unwrap()
            .clone()
    };
    assert_eq!(row("sample.echo")["completedOnFirstAttempt"], 1);
    assert_eq!(row("sample.fail")["completedOnSecondAttempt"], 1);
    assert!(row("sample.echo")["run"]["p50Ms"].is_f64(), "{stats}");

    let long_ago = server
        .get("/api/stats?from=2001-01-01T00:00:00Z&to=2001-01-02T00:00:00Z")
        .await
        .expect(200);
    assert_eq!(long_ago["types"][0]["ended"], json!({}));
}

async fn nodes_health_and_the_openapi_document_are_served(store: Backend) {
    let server = Server::start(store).await;
    let nodes = server.get("/api/nodes").await.expect(200);
    assert_eq!(
        (
            nodes["items"].as_array().unwrap().len(),
            &nodes["items"][0]["lostAt"]
        ),
        (1, &Value::Null)
    );

    assert_eq!(
        server.get("/healthz").await.expect(200),
        json!({ "status": "ok" })
    );
    assert_eq!(
        readiness(server.address, 200).await.expect(200),
        json!({ "status": "ok" })
    );

    let document = server.get("/api/openapi.json").await.expect(200);
    assert_eq!(document["openapi"], "3.1.0");
    for route in longhaul::server::route_table() {
        let operation = &document["paths"][route.path][route.verb.as_str().to_lowercase()];
        assert!(
            operation.is_object(),
            "{} {}",
            route.verb.as_str(),
            route.path
        );
    }
}

async fn a_checkpoint_is_stored_and_shown(store: Backend) {
    let server = Server::start(store).await;
    let id = server
        .submit(
            "sample.checkpoint",
            json!({ "steps": 3, "stepMs": 1 }),
            json!({}),
        )
        .await;

    server.until_status(&id, Status::Completed).await;
    let task = server.task(&id).await;
    assert_eq!(
        (&task["result"], &task["checkpoint"]),
        (&json!({ "steps": 3, "resumedFrom": 0 }), &json!(3))
    );
    assert_eq!(task["progress"]["percent"], 100.0);
}

async fn a_rate_limited_task_is_requeued_without_using_a_retry(store: Backend) {
    let server = Server::start(store).await;
    let limited = json!({ "kind": "rate_limited", "times": 2, "retryAfterMs": 1 });
    let id = server
        .submit("sample.fail", limited, json!({ "maxAttempts": 1 }))
        .await;

    server.until_status(&id, Status::Completed).await;
    let task = server.task(&id).await;
    assert_eq!(
        (&task["retryCount"], &task["snoozeCount"], &task["attempt"]),
        (&json!(0), &json!(2), &json!(3))
    );
}

async fn a_task_without_a_free_slot_shows_how_many_are_ahead(store: Backend) {
    let server = Server::start_with_slots(store, 1).await;
    let busy = server
        .submit("sample.sleep", json!({ "ms": 3_600_000 }), json!({}))
        .await;
    server.until_status(&busy, Status::Running).await;
    let mut last = String::new();
    let now = server
        .longhaul
        .engine()
        .reads()
        .now()
        .await
        .unwrap()
        .as_micros();

    for seconds in [30, 20, 10] {
        // Each task has its own due time, so that their order is fixed.
        let due = jiff::Timestamp::from_microsecond(now - seconds * 1_000_000)
            .unwrap()
            .to_string();

        last = server
            .submit("sample.echo", json!(1), json!({ "runAt": due }))
            .await;
    }

    let why = server
        .get(format!("/api/tasks/{last}/why"))
        .await
        .expect(200);
    assert_eq!(
        (&why["reason"], &why["facts"]["ahead"]),
        (&json!("slots_full"), &json!(2)),
        "{why}"
    );

    assert_eq!(
        (&why["facts"]["used"], &why["facts"]["slots"]),
        (&json!(1), &json!(1))
    );
    server
        .submit("sample.echo", json!(1), json!({ "priority": 9 }))
        .await;

    let why = server
        .get(format!("/api/tasks/{last}/why"))
        .await
        .expect(200);
    assert_eq!(why["facts"]["ahead"], 3);
    server
        .send(Call::new("DELETE", format!("/api/tasks/{busy}")))
        .await
        .expect(204);
    server.until_status(&last, Status::Completed).await;
}
