//! The client reads what the server writes, and writes the same again.

#![expect(clippy::unwrap_used, reason = "a failure stops the test")]

use longhaul_api::{
    AttemptView, BatchRequest, BulkAnswer, LogView, NodeView, Page, Problem, QueueView,
    RetryRequest, StatsView, SubmitAnswer, SubmitRequest, TaskChange, TaskEventView, TaskSummary,
    TaskView, TypeView, WhyView,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

const ID: &str = "01900000-0000-7000-8000-000000000000";
const AT: &str = "2026-03-01T08:30:00.123456Z";

#[track_caller]
fn assert_round_trip<T: Serialize + DeserializeOwned>(document: Value) {
    let read: T = serde_json::from_str(&document.to_string()).unwrap();
    assert_eq!(
        serde_json::to_value(&read).unwrap(),
        document,
        "{}",
        std::any::type_name::<T>()
    );
}

fn summary() -> Value {
    json!({
        "taskId": ID, "userId": "u-1", "taskType": "sample.echo", "status": "COMPLETED_WITH_ERRORS",
        "queue": "free_default", "tier": "vip", "taskKey": null, "correlationId": "c-1",
        "parentTaskId": ID,
        "priority": 9, "attempt": 2, "maxAttempts": 5, "retryCount": 1,
        "progress": { "percent": 12.5, "message": "step 1 of 8" }, "errorMessage": "no",
        "children": {
            "total": 5, "open": 1, "completed": 1, "withErrors": 1, "failed": 1, "cancelled": 1
        },
        "createdAt": AT, "updatedAt": AT, "runAt": AT, "nextAttemptAt": null,
        "startedAt": AT, "finishedAt": null, "version": 7
    })
}

fn error() -> Value {
    json!({ "class": "retryable", "message": "no", "detail": null, "at": AT, "attempt": 1 })
}

#[test]
fn tasks_attempts_log_lines_and_events_survive_a_round_trip() {
    assert_round_trip::<TaskSummary>(summary());
    assert_round_trip::<Page<TaskSummary>>(
        json!({ "items": [summary(), summary()], "nextCursor": "c" }),
    );

    let mut task = summary();
    let more = json!({
        "parameters": [1, "two", null], "checkpoint": null,
        "result": { "deep": [{ "er": 1.5 }] }, "resultUrl": null, "error": error(),
        "memo": null, "phase": "run", "snoozeCount": 0, "crashCount": 1,
        "retryPolicy": { "initialMs": 1000, "factor": 2.0, "jitter": 0.5, "maxMs": 60000 },
        "lastAttemptAt": AT, "timeout": "PT30S", "deadline": null, "nodeId": ID, "host": "h",
        "traceContext": null, "artifactExpiresAt": null, "artifactState": null
    });
    task.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    assert_round_trip::<TaskView>(task);
    assert_round_trip::<AttemptView>(json!({
        "attempt": 1, "outcome": "timed_out", "nodeId": null, "host": "h", "startedAt": AT,
        "endedAt": null, "error": error()
    }));
    assert_round_trip::<LogView>(
        json!({ "number": 1, "attempt": 1, "level": "warn", "message": "m", "loggedAt": AT }),
    );

    assert_round_trip::<TaskEventView>(json!({
        "taskId": ID, "userId": "u-1", "taskType": "sample.echo", "event": "dead_lettered",
        "status": "DEAD_LETTER", "correlationId": "c-1", "attempt": 5, "version": 9,
        "progress": { "percent": 1 }, "error": "no"
    }));
}

#[test]
fn queues_nodes_types_and_statistics_survive_a_round_trip() {
    assert_round_trip::<QueueView>(
        json!({ "name": "own", "paused": true, "pausedAt": AT, "tasks": { "QUEUED": 3 } }),
    );
    assert_round_trip::<NodeView>(json!({
        "nodeId": ID, "name": "dev", "host": "h", "startedAt": AT, "heartbeatAt": AT,
        "lostAt": null, "queues": ["own"], "taskTypes": ["t"], "slots": 7
    }));
    assert_round_trip::<TypeView>(json!({
        "taskType": "t", "parameters": { "type": "object" }, "result": true,
        "progress": { "type": "object" }, "queue": null, "expectedDuration": "PT5S",
        "maxAttempts": 5, "timeout": null, "cancellable": true
    }));

    let times = json!({ "p50Ms": 1.5, "p95Ms": null, "p99Ms": null });
    assert_round_trip::<StatsView>(json!({
        "from": AT, "to": AT, "tasks": { "QUEUED": 3 },
        "types": [{
            "taskType": "t", "queue": "q", "tasks": {}, "ended": { "COMPLETED": 2 },
            "completedOnFirstAttempt": 1, "completedOnSecondAttempt": 1, "completedLater": 0,
            "wait": times, "run": times
        }]
    }));

    assert_round_trip::<WhyView>(
        json!({ "sentence": "It runs.", "reason": "running", "facts": { "node": "dev" } }),
    );
}

#[test]
fn requests_answers_and_problems_survive_a_round_trip() {
    let order = json!({
        "taskType": "t", "parameters": { "a": 1 }, "priority": 9, "runAt": AT,
        "delay": "PT5S", "queue": "q", "tier": "vip", "expectedDuration": "PT1S",
        "maxAttempts": 3, "timeout": "PT30S", "taskKey": "k", "correlationId": "c"
    });

    assert_round_trip::<SubmitRequest>(order.clone());
    assert_round_trip::<BatchRequest>(json!({ "tasks": [order] }));
    assert_round_trip::<SubmitAnswer>(json!({ "taskId": ID, "status": "QUEUED" }));
    assert_round_trip::<TaskChange>(
        json!({ "runAt": AT, "priority": 1, "maxAttempts": 2, "queue": "q" }),
    );
    assert_round_trip::<RetryRequest>(json!({ "scope": "failedChildren" }));
    assert_round_trip::<BulkAnswer>(json!({ "matched": 2, "changed": 1, "nextCursor": null }));
    assert_round_trip::<Problem>(json!({
        "type": "urn:longhaul:invalid_field", "title": "Unprocessable Entity",
        "status": 422, "code": "invalid_field", "detail": "priority is 12",
        "field": "priority", "allowed": "1 to 9",
        "errors": [{ "field": "a", "problem": "b" }, { "field": "c", "problem": "d" }]
    }));
}
