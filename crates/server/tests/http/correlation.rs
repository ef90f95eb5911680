//! Correlation ids and traces, from the header of a request to the last event of its task.

use libtest_mimic::Trial;
use longhaul::Status;
use serde_json::{Value, json};

use crate::database::Backend;
use crate::trial::on_every_store;
use crate::{client::Call, server::Server};

pub(crate) fn trials() -> Vec<Trial> {
    on_every_store![
        a_task_has_the_correlation_id_of_its_request,
        children_and_events_inherit_the_correlation_id,
        a_task_continues_the_callers_trace_or_starts_its_own,
        responses_and_problems_have_the_correlation_id
    ]
}

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

async fn submit(server: &Server, call: Call) -> String {
    server.send(call).await.expect(202)["taskId"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn echo(more: Value) -> Call {
    let mut body = json!({ "taskType": "sample.echo" });
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    Call::post("/api/tasks", &body)
}

async fn a_task_has_the_correlation_id_of_its_request(store: Backend) {
    let server = Server::start(store).await;
    let from =
        async |call: Call| server.task(&submit(&server, call).await).await["correlationId"].clone();
    assert_eq!(
        from(echo(json!({})).header("X-Correlation-Id", "order 7")).await,
        "order 7"
    );
    assert_eq!(
        from(echo(json!({})).header("X-Request-Id", "r-1")).await,
        "r-1"
    );

    let both = echo(json!({ "correlationId": "own" })).header("X-Correlation-Id", "order 7");
    assert_eq!(from(both).await, "own", "what the body says counts");
    assert_eq!(from(echo(json!({}))).await, Value::Null);
    let too_long = "x".repeat(500);
    assert_eq!(
        from(echo(json!({})).header("X-Correlation-Id", &too_long)).await,
        Value::Null
    );
}

async fn children_and_events_inherit_the_correlation_id(store: Backend) {
    let server = Server::start(store).await;
    let mut events = server.longhaul.events(longhaul::Subscription::default());
    let body = json!({ "taskType": "sample.fanout", "parameters": { "children": 2 } });
    let call = Call::post("/api/tasks", &body)
        .header("X-Correlation-Id", "order 7")
        .header("traceparent", TRACE);
    let id = submit(&server, call).await;

    server.until_status(&id, Status::Completed).await;
    let children = server
        .get(format!("/api/tasks/{id}/children"))
        .await
        .expect(200);
    for child in children["items"].as_array().unwrap() {
        assert_eq!(child["correlationId"], "order 7");
        let child = server.task(child["taskId"].as_str().unwrap()).await;
        assert!(
            child["traceContext"].as_str().unwrap().contains(TRACE_ID),
            "{child}"
        );
    }

    let mut ends = 0;
    while ends < 3 {
        if let Some(longhaul::Received::Event(event)) = events.next().await {
            assert_eq!(
                event.correlation_id.as_deref(),
                Some("order 7"),
                "{event:?}"
            );
            ends += u32::from(event.event == longhaul::EventKind::Completed);
        }
    }
}

async fn a_task_continues_the_callers_trace_or_starts_its_own(store: Backend) {
    let server = Server::start(store).await;
    let given = server
        .task(&submit(&server, echo(json!({})).header("traceparent", TRACE)).await)
        .await;
    assert_eq!(given["traceContext"], TRACE);

    let one = server.task(&submit(&server, echo(json!({}))).await).await["traceContext"].clone();
    let two = server
        .task(&submit(&server, echo(json!({})).header("traceparent", "nonsense")).await)
        .await;
    assert_ne!(one, two["traceContext"]);
    for made in [&one, &two["traceContext"]] {
        assert!(
            longhaul::TraceContext::parse(made.as_str().unwrap()).is_some(),
            "{made}"
        );
    }
}

async fn responses_and_problems_have_the_correlation_id(store: Backend) {
    let server = Server::start(store).await;
    let call = Call::get("/api/tasks")
        .header("X-Correlation-Id", "order 7")
        .header("X-Request-Id", "r-1");

    let reply = server.send(call).await;
    assert_eq!(
        (
            &*reply.headers["x-correlation-id"],
            &*reply.headers["x-request-id"]
        ),
        ("order 7", "r-1")
    );

    let wrong = Call::post("/api/tasks", &json!({ "taskType": "none" }))
        .header("X-Correlation-Id", "order 7");
    let problem = server.send(wrong).await.problem(422, "invalid_field");
    assert_eq!(problem["correlationId"], "order 7");

    let unnamed = server.get("/api/tasks/none").await;
    assert_eq!(unnamed.headers["x-request-id"].len(), 32);
    assert_eq!(
        unnamed.problem(404, "task_not_found")["correlationId"],
        Value::Null
    );
}
