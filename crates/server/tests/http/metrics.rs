//! The metrics endpoint.

use std::time::Instant;

use libtest_mimic::Trial;
use longhaul::Status;
use serde_json::json;

use crate::database::Backend;
use crate::trial::on_every_store;
use crate::{
    client::{Call, DEADLINE},
    server::Server,
};

pub(crate) fn trials() -> Vec<Trial> {
    on_every_store![
        task_metrics_count_what_happens,
        requests_are_counted_by_route_and_not_by_path,
        user_chosen_names_create_a_bounded_number_of_series,
        scrapers_that_accept_it_get_open_metrics,
        metrics_are_for_operators,
        a_throttled_key_is_counted_and_the_task_shows_its_next_try
    ]
}

/// A complete scrape: the values of a slow store arrive with the next one.
pub(crate) async fn scrape(server: &Server) -> String {
    let whole = async {
        loop {
            let reply = server.get("/metrics").await;
            let kind = &*reply.headers["content-type"];
            assert_eq!(
                (reply.status, kind),
                (200, "text/plain; version=0.0.4; charset=utf-8")
            );

            if reply.text.contains("tasks_store_up 1\n") {
                return reply.text;
            }
        }
    };

    tokio::time::timeout(DEADLINE, whole)
        .await
        .expect("a whole scrape in time")
}

/// The first scrape that satisfies the condition, or the last one before the deadline. Counters
/// follow the store with a delay.
pub(crate) async fn scrape_until(server: &Server, condition: impl Fn(&str) -> bool) -> String {
    let began = Instant::now();
    loop {
        let text = scrape(server).await;
        if condition(&text) || began.elapsed() > DEADLINE {
            return text;
        }
    }
}

/// The scrape in which all these series have their values.
async fn scrape_with(server: &Server, wanted: &[(&str, f64)]) -> String {
    let has_all = |text: &str| {
        wanted
            .iter()
            .all(|(series, wanted)| found(text, series) == Some(*wanted))
    };
    let text = scrape_until(server, has_all).await;

    for (series, wanted) in wanted {
        assert_eq!(value(&text, series), *wanted, "{series} in\n{text}");
    }

    text
}

fn found(text: &str, series: &str) -> Option<f64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    Some(line.parse().unwrap())
}

/// The value of the only series with this name and these labels.
#[track_caller]
fn value(text: &str, series: &str) -> f64 {
    found(text, series).unwrap_or_else(|| panic!("no {series} in\n{text}"))
}

/// The expected counters of the case below.
const COUNTED: [(&str, f64); 17] = [
    ("tasks_submitted_total{task_type=\"sample.fail\"}", 1.0),
    (
        "tasks_subtasks_created_total{task_type=\"sample.sleep\"}",
        3.0,
    ),
    (
        "tasks_finished_total{task_type=\"sample.echo\",status=\"COMPLETED\"}",
        1.0,
    ),
    (
        "tasks_finished_total{task_type=\"sample.fail\",status=\"DEAD_LETTER\"}",
        1.0,
    ),
    (
        "tasks_finished_total{task_type=\"sample.echo\",status=\"CANCELLED\"}",
        1.0,
    ),
    (
        "tasks_finished_total{task_type=\"sample.fanout\",status=\"COMPLETED\"}",
        1.0,
    ),
    ("tasks_retries_total{task_type=\"sample.fail\"}", 1.0),
    ("tasks_dlq_entered_total{task_type=\"sample.fail\"}", 1.0),
    (
        "tasks_execution_seconds_count{task_type=\"sample.fail\",status=\"RETRYING\"}",
        1.0,
    ),
    (
        "tasks_execution_seconds_count{task_type=\"sample.fail\",status=\"DEAD_LETTER\"}",
        1.0,
    ),
    (
        "tasks_queue_size{queue=\"free_default\",status=\"DEAD_LETTER\"}",
        1.0,
    ),
    (
        "tasks_events_published_total{event_type=\"dead_lettered\"}",
        1.0,
    ),
    ("tasks_outbox_pending", 0.0),
    ("tasks_zombies_rescued_total", 0.0),
    ("tasks_nodes_alive", 1.0),
    ("tasks_workers_alive", 1.0),
    ("tasks_store_up", 1.0),
];

async fn task_metrics_count_what_happens(store: Backend) {
    let server = Server::start(store).await;
    let echo = server.submit("sample.echo", json!(1), json!({})).await;
    server.until_status(&echo, Status::Completed).await;
    let dead = json!({ "kind": "retryable", "retryAfterMs": 1 });
    let dead = server
        .submit("sample.fail", dead, json!({ "maxAttempts": 2 }))
        .await;

    server.until_status(&dead, Status::DeadLetter).await;
    let fan = server
        .submit("sample.fanout", json!({ "children": 3 }), json!({}))
        .await;
    server.until_status(&fan, Status::Completed).await;
    let later = server.submit_for_later("default").await;

    for _ in 0..2 {
        server
            .send(Call::new("DELETE", format!("/api/tasks/{later}")))
            .await
            .expect(204);
    }

    let text = scrape_with(&server, &COUNTED).await;
    assert!(
        value(
            &text,
            "tasks_queue_wait_seconds_count{queue=\"free_default\"}"
        ) >= 6.0
    );

    assert!(
        value(
            &text,
            "tasks_state_db_updates_total{operation=\"finish_tasks\"}"
        ) >= 1.0
    );

    assert!(value(&text, "tasks_slots_offered") >= 1.0);
    assert!(value(&text, "process_resident_memory_bytes") > 1e6);
    assert!(
        !text.contains(&echo) && !text.contains("userId"),
        "no label is an id or an owner"
    );
}

async fn requests_are_counted_by_route_and_not_by_path(store: Backend) {
    let server = Server::start(store).await;
    let id = server.submit("sample.echo", json!(1), json!({})).await;
    server.task(&id).await;
    server
        .get("/api/tasks/01900000-0000-7000-8000-000000000000")
        .await
        .problem(404, "task_not_found");
    server
        .get("/nowhere/at/all")
        .await
        .problem(404, "no_such_path");

    let wanted = [
        (
            "http_requests_total{route=\"/api/tasks/{id}\",method=\"GET\",status=\"200\"}",
            1.0,
        ),
        (
            "http_requests_total{route=\"/api/tasks/{id}\",method=\"GET\",status=\"404\"}",
            1.0,
        ),
        (
            "http_requests_total{route=\"/api/tasks\",method=\"POST\",status=\"202\"}",
            1.0,
        ),
        (
            "http_requests_total{route=\"none\",method=\"GET\",status=\"404\"}",
            1.0,
        ),
        (
            "http_request_seconds_count{route=\"/api/tasks/{id}\",method=\"GET\"}",
            2.0,
        ),
        ("http_live_streams", 0.0),
    ];

    let text = scrape_with(&server, &wanted).await;
    assert!(!text.contains("nowhere"));
}

async fn user_chosen_names_create_a_bounded_number_of_series(store: Backend) {
    let server = Server::start(store).await;
    for n in 0..230 {
        server
            .submit(
                "sample.echo",
                json!(1),
                json!({ "queue": format!("own-{n:03}") }),
            )
            .await;
    }

    let text = scrape(&server).await;
    let queues = text
        .lines()
        .filter(|line| line.starts_with("tasks_queue_size{"))
        .count();
    assert!(queues <= 201, "{queues}");
    assert_eq!(
        value(&text, "tasks_queue_size{queue=\"other\",status=\"QUEUED\"}"),
        30.0
    );
}

async fn scrapers_that_accept_it_get_open_metrics(store: Backend) {
    let server = Server::start(store).await;
    let accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
    let reply = server
        .send(Call::get("/metrics").header("Accept", accept))
        .await;
    assert_eq!(
        reply.headers["content-type"],
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    assert!(
        reply.text.ends_with("# EOF\n")
            && reply
                .text
                .contains("# TYPE tasks_zombies_rescued counter\n")
    );
}

async fn metrics_are_for_operators(store: Backend) {
    let server = Server::behind_a_gateway(store).await;
    server.get("/metrics").await.problem(401, "unauthenticated");
    server
        .send(Call::get("/metrics").user("u-1"))
        .await
        .problem(403, "forbidden");

    let reply = server
        .send(
            Call::get("/metrics")
                .user("u-1")
                .header("X-User-Scopes", "operate"),
        )
        .await;
    assert_eq!(reply.status, 200);
}

async fn a_throttled_key_is_counted_and_the_task_shows_its_next_try(store: Backend) {
    let server = Server::start(store).await;
    let limited = json!({ "kind": "rate_limited", "retryAfterMs": 3_600_000 });
    let id = server.submit("sample.fail", limited, json!({})).await;
    server.until_status(&id, Status::Retrying).await;
    let why = server.get(format!("/api/tasks/{id}/why")).await.expect(200);
    assert_eq!(why["reason"], "limited", "{why}");
    assert!(
        (3_500..=3_600).contains(&why["facts"]["inSeconds"].as_u64().unwrap()),
        "{why}"
    );
    scrape_with(
        &server,
        &[("tasks_ratelimit_throttled_total{key=\"none\"}", 1.0)],
    )
    .await;
}
