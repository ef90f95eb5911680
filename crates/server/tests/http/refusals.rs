//! Invalid requests are refused with the field and what is allowed.

use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::database::Backend;
use crate::trial::on_every_store;
use crate::{client::Call, server::Server};

pub(crate) fn trials() -> Vec<Trial> {
    on_every_store![
        an_invalid_submit_is_refused_with_the_field,
        an_unknown_type_is_refused_with_the_known_ones,
        invalid_json_is_refused_with_line_and_column,
        a_body_that_is_too_large_or_too_deep_is_refused,
        idempotency_keys_are_checked,
        an_array_in_place_of_an_object_is_refused,
        an_unknown_queue_cannot_be_paused,
        a_list_refuses_unknown_parameters,
        unknown_paths_methods_and_ids_are_problem_documents
    ]
}

#[expect(clippy::too_many_lines, reason = "one table of bad requests")]
async fn an_invalid_submit_is_refused_with_the_field(store: Backend) {
    let server = Server::start(store).await;
    let cases = [
        (json!({}), "taskType"),
        (json!({ "taskType": 7 }), "taskType"),
        (
            json!({ "taskType": "sample.echo", "colour": "red" }),
            "colour",
        ),
        (
            json!({ "taskType": "sample.echo", "priority": 0 }),
            "priority",
        ),
        (
            json!({ "taskType": "sample.echo", "priority": 10 }),
            "priority",
        ),
        (
            json!({ "taskType": "sample.echo", "priority": "high" }),
            "priority",
        ),
        (
            json!({ "taskType": "sample.echo", "maxAttempts": 0 }),
            "maxAttempts",
        ),
        (
            json!({ "taskType": "sample.echo", "runAt": "tomorrow" }),
            "runAt",
        ),
        (
            json!({ "taskType": "sample.echo", "delay": "-5s" }),
            "delay",
        ),
        (
            json!({ "taskType": "sample.echo", "delay": "900000d" }),
            "delay",
        ),
        (
            json!({ "taskType": "sample.echo", "delay": "5s", "runAt": "2999-01-01T00:00:00Z" }),
            "delay",
        ),
        (
            json!({ "taskType": "sample.echo", "timeout": 30 }),
            "timeout",
        ),
        (
            json!({ "taskType": "sample.echo", "queue": "no such queue!" }),
            "queue",
        ),
        (
            json!({ "taskType": "sample.echo", "taskKey": "" }),
            "taskKey",
        ),
        (json!({ "taskType": "sample.sleep" }), "parameters"),
        (
            json!({ "taskType": "sample.sleep", "parameters": {} }),
            "parameters.ms",
        ),
        (
            json!({ "taskType": "sample.sleep", "parameters": { "ms": -1 } }),
            "parameters.ms",
        ),
        (
            json!({ "taskType": "sample.sleep", "parameters": { "ms": 1, "s": 1 } }),
            "parameters.s",
        ),
        (
            json!({ "taskType": "sample.fail", "parameters": { "kind": "odd" } }),
            "parameters.kind",
        ),
        (
            json!({ "taskType": "sample.echo", "timeout": "0s" }),
            "timeout",
        ),
        (json!([]), "body"),
        (json!(["sample.echo"]), "body"),
        (
            json!([
                "sample.echo",
                null,
                5,
                null,
                null,
                null,
                null,
                null,
                null,
                null,
                null,
                null
            ]),
            "body",
        ),
    ];

    for (body, field) in cases {
        let problem = server
            .post("/api/tasks", &body)
            .await
            .problem(422, "invalid_field");
        assert_eq!(
            (&problem["field"], problem["allowed"].is_string()),
            (&json!(field), true),
            "{body}: {problem}"
        );
    }

    assert_eq!(
        server.get("/api/tasks").await.expect(200)["items"],
        json!([]),
        "nothing was made"
    );
}

async fn an_array_in_place_of_an_object_is_refused(store: Backend) {
    let server = Server::start(store).await;
    let id = server.submit_for_later("default").await;
    let array = json!([
        "sample.echo",
        null,
        null,
        null,
        null,
        null,
        null,
        null,
        null,
        null,
        null,
        null
    ]);
    for (call, field) in [
        (Call::post("/api/tasks", &array), "body"),
        (Call::post("/api/tasks/batch", &json!([[array]])), "body"),
        (
            Call::post("/api/tasks/batch", &json!({ "tasks": [array] })),
            "tasks[0]",
        ),
        (
            Call::new("PATCH", format!("/api/tasks/{id}")).json(&json!([null, null, 5, null])),
            "body",
        ),
    ] {
        let problem = server.send(call).await.problem(422, "invalid_field");
        assert_eq!(problem["field"], field, "{problem}");
    }
}

async fn an_unknown_queue_cannot_be_paused(store: Backend) {
    let server = Server::start(store).await;
    for what in ["pause", "resume"] {
        let call = |queue: &str| Call::new("POST", format!("/api/queues/{queue}/{what}"));
        server
            .send(call("no_such_queue"))
            .await
            .problem(404, "queue_not_found");

        // The routing names it, and it has no task yet.
        server.send(call("vip_short")).await.expect(204);
    }

    let queues = server.get("/api/queues").await.expect(200);
    assert!(!queues.to_string().contains("no_such_queue"), "{queues}");
}

async fn an_unknown_type_is_refused_with_the_known_ones(store: Backend) {
    let server = Server::start(store).await;
    let problem = server
        .post("/api/tasks", &json!({ "taskType": "sample.eccho" }))
        .await;

    let problem = problem.problem(422, "invalid_field");
    assert_eq!(problem["field"], "taskType");
    for known in ["echo", "sleep", "fail", "progress", "fanout", "checkpoint"] {
        assert!(
            problem["allowed"]
                .as_str()
                .unwrap()
                .contains(&format!("sample.{known}")),
            "{problem}"
        );
    }
}

async fn invalid_json_is_refused_with_line_and_column(store: Backend) {
    let server = Server::start(store).await;
    let call = Call::new("POST", "/api/tasks")
        .text("{\"taskType\": \"sample.echo\",\n  \"parameters\": oops}");
    let problem = server.send(call).await.problem(400, "invalid_json");
    assert_eq!(
        (&problem["line"], &problem["column"]),
        (&json!(2), &json!(17))
    );

    for text in ["", "{", "nonsense", "{} {}"] {
        let reply = server
            .send(Call::new("POST", "/api/tasks").text(text))
            .await;
        assert!([400, 422].contains(&reply.status), "{text}: {}", reply.text);
    }

    let mut call = Call::new("POST", "/api/tasks").header("Content-Type", "text/plain");
    call.body = Some("{}".to_owned());
    server.send(call).await.problem(415, "not_json");
    let call = Call::post("/api/tasks", &json!({})).header("Content-Encoding", "gzip");
    server
        .send(call)
        .await
        .problem(415, "encoding_not_supported");
}

async fn a_body_that_is_too_large_or_too_deep_is_refused(store: Backend) {
    let server = Server::start(store).await;
    let submit = |parameters: String| {
        Call::new("POST", "/api/tasks").text(&format!(
            "{{\"taskType\":\"sample.echo\",\"parameters\":{parameters}}}"
        ))
    };

    server
        .send(submit(format!("\"{}\"", "x".repeat(1024 * 1024))))
        .await
        .problem(413, "body_too_large");

    for parameters in [
        "[".repeat(200) + &"]".repeat(200),
        "[".repeat(200_000) + &"]".repeat(200_000),
        format!("[{}0]", "1,".repeat(200_000)),
        format!("\"{}\"", "x".repeat(70_000)),
        "\"\\u0000\"".to_owned(),
    ] {
        let shown = parameters.chars().take(20).collect::<String>();
        let problem = server
            .send(submit(parameters))
            .await
            .problem(422, "invalid_field");
        assert_eq!(problem["field"], "parameters", "{shown}");
    }

    server
        .send(submit("[".repeat(60) + &"]".repeat(60)))
        .await
        .expect(202);
}

async fn idempotency_keys_are_checked(store: Backend) {
    let server = Server::start(store).await;
    let body = json!({ "taskType": "sample.echo" });
    for key in ["child/x/1", &"k".repeat(191)] {
        let reply = server
            .send(Call::post("/api/tasks", &body).header("Idempotency-Key", key))
            .await;
        assert_eq!(
            reply.problem(422, "invalid_field")["field"],
            "Idempotency-Key"
        );
    }

    let call = Call::post("/api/tasks", &body)
        .header("Idempotency-Key", "a")
        .header("Idempotency-Key", "b");
    server.send(call).await.problem(422, "invalid_field");
}

async fn a_list_refuses_unknown_parameters(store: Backend) {
    let server = Server::start(store).await;
    for (query, code, field) in [
        ("cursor=nonsense", "invalid_cursor", None),
        ("stauts=QUEUED", "invalid_filter", Some("stauts")),
        ("status=queued", "invalid_filter", Some("status")),
        ("size=0", "invalid_filter", Some("size")),
        ("size=9999", "invalid_filter", Some("size")),
        ("sort=priority;drop", "invalid_filter", Some("sort")),
        (
            "createdAfter=yesterday",
            "invalid_filter",
            Some("createdAfter"),
        ),
        ("parentTaskId=7", "invalid_filter", Some("parentTaskId")),
    ] {
        let problem = server
            .get(format!("/api/tasks?{query}"))
            .await
            .problem(400, code);
        assert_eq!(
            problem.get("field").and_then(Value::as_str),
            field,
            "{query}"
        );
    }

    server
        .get("/api/tasks/dead-letter?status=QUEUED")
        .await
        .problem(400, "invalid_filter");
    server
        .get("/api/stats?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z")
        .await
        .problem(400, "invalid_filter");
    server
        .get("/api/stats?from=1990-01-01T00:00:00Z")
        .await
        .problem(400, "invalid_filter");
}

async fn unknown_paths_methods_and_ids_are_problem_documents(store: Backend) {
    let server = Server::start(store).await;
    server
        .get("/api/nothing")
        .await
        .problem(404, "no_such_path");
    server
        .send(Call::new("PUT", "/api/tasks"))
        .await
        .problem(405, "method_not_allowed");

    server
        .get("/api/tasks/not-an-id")
        .await
        .problem(404, "task_not_found");
    server
        .get("/api/tasks/01900000-0000-7000-8000-000000000000")
        .await
        .problem(404, "task_not_found");
    server
        .send(Call::new("POST", "/api/queues/no%20queue!/pause"))
        .await
        .problem(422, "invalid_field");
}
