//! Bad input is refused with the name of the field, and changes nothing.

use std::sync::Arc;

use longhaul_domain::{
    Idempotency, Invalid, Json, NewTask, RetryPolicy, RunAt, StoreError, Timestamp, bounds,
    contract::store::{Access, AttemptEnd, AttemptReport},
    filter::{PageRequest, TaskFilter},
    lifecycle::reschedule::Reschedule,
};

use super::{
    case::{Case, cases},
    support::{QUEUE, claim_request, failure, new_task, random_node_id, refused_field, with},
};
use crate::fixture::Fixture;

pub(super) fn cases() -> Vec<Case> {
    cases![
        invalid_names_are_refused_by_field,
        invalid_labels_are_refused_by_field,
        numbers_out_of_range_are_refused_by_field,
        times_out_of_range_are_refused_by_field,
        invalid_json_is_refused_by_field,
        an_invalid_reschedule_is_refused_by_field,
        an_invalid_filter_is_refused_by_field,
        invalid_reports_are_refused_by_field,
        an_unknown_owner_finds_nothing,
    ]
}

/// 9999-12-31T23:59:59Z in microseconds.
pub(super) const LAST_MICROS: i64 = 253_402_300_799_000_000;

/// Text that is no name.
fn invalid_names() -> Vec<String> {
    let mut names = ["", "a\0b", "a\nb", "a\u{7f}", "\u{85}"]
        .map(str::to_owned)
        .to_vec();
    names.push("x".repeat(bounds::NAME_BYTES + 1));
    names
}

/// A new task with one change.
fn task_with(change: impl FnOnce(&mut NewTask)) -> NewTask {
    with(new_task(), change)
}

fn idempotency(key: &str, ttl_ms: u64) -> Option<Idempotency> {
    Some(Idempotency {
        key: key.to_owned(),
        digest: [0; 32],
        ttl_ms,
    })
}

/// Submits each task and expects the named field to be refused.
async fn assert_refused(
    fixture: &Fixture,
    tasks: impl IntoIterator<Item = (&'static str, NewTask)>,
) {
    for (field, task) in tasks {
        assert_eq!(refused_field(fixture.store.submit_task(task).await), field);
    }
}

async fn invalid_names_are_refused_by_field(fixture: Arc<Fixture>) {
    let node = random_node_id();
    for name in invalid_names() {
        let some = Some(name.clone());
        let tasks = [
            ("userId", task_with(|task| task.owner = name.clone().into())),
            ("tier", task_with(|task| task.tier = some.clone())),
            ("taskKey", task_with(|task| task.task_key = some.clone())),
            (
                "correlationId",
                task_with(|task| task.correlation_id = some.clone()),
            ),
            (
                "traceContext",
                task_with(|task| task.trace_context = some.clone()),
            ),
            (
                "Idempotency-Key",
                task_with(|task| task.idempotency = idempotency(&name, 1)),
            ),
        ];
        assert_refused(&fixture, tasks).await;

        let store = &fixture.store;
        let answer = store.register_node(node, &name, "host-1", None).await;
        assert_eq!(refused_field(answer), "nodeName");
        let answer = store.register_node(node, "node-1", &name, None).await;
        assert_eq!(refused_field(answer), "host");
    }

    assert!(fixture.all_tasks().await.is_empty());
    assert!(fixture.store.list_nodes().await.unwrap().is_empty());
}

async fn invalid_labels_are_refused_by_field(fixture: Arc<Fixture>) {
    let node = fixture.node().await;
    let long = "x".repeat(bounds::LABEL_BYTES + 1);
    for label in [
        "", " ", "a b", "é", "a'b", "a\0", "a\n", "a;b", "a%", "a\\b", "😀", &long,
    ] {
        let tasks = [("taskType", task_with(|task| task.task_type = label.into()))];
        assert_refused(&fixture, tasks).await;

        let store = &fixture.store;
        let request = claim_request(node, &[QUEUE], &[label], 1);
        assert_eq!(refused_field(store.claim_tasks(&request).await), "taskType");
    }

    assert!(
        fixture.store.list_queues().await.unwrap().is_empty(),
        "a refused request creates no queue"
    );
}

async fn numbers_out_of_range_are_refused_by_field(fixture: Arc<Fixture>) {
    let priorities = [0, 10, 255].map(|priority| task_with(|task| task.priority = priority));
    assert_refused(&fixture, priorities.map(|task| ("priority", task))).await;

    let attempts = [0, 1_001, u32::MAX].map(|most| task_with(|task| task.max_attempts = most));
    assert_refused(&fixture, attempts.map(|task| ("maxAttempts", task))).await;

    let policy = |change: fn(&mut RetryPolicy)| task_with(|task| change(&mut task.retry));
    let policies = [
        ("retry.factor", policy(|retry| retry.factor = 0.5)),
        ("retry.factor", policy(|retry| retry.factor = f64::NAN)),
        ("retry.jitter", policy(|retry| retry.jitter = f64::INFINITY)),
        ("retry.jitter", policy(|retry| retry.jitter = -0.1)),
        (
            "retry.initialMs",
            policy(|retry| retry.initial_ms = u64::MAX),
        ),
        ("retry.maxMs", policy(|retry| retry.max_ms = u64::MAX)),
    ];
    assert_refused(&fixture, policies).await;

    for ms in [bounds::DURATION_MS + 1, u64::MAX] {
        let durations = [
            ("timeout", task_with(|task| task.timeout_ms = Some(ms))),
            ("delay", task_with(|task| task.run_at = RunAt::AfterMs(ms))),
            (
                "idempotencyTtl",
                task_with(|task| task.idempotency = idempotency("k", ms)),
            ),
        ];
        assert_refused(&fixture, durations).await;
    }
}

async fn times_out_of_range_are_refused_by_field(fixture: Arc<Fixture>) {
    for micros in [-1, i64::MIN, LAST_MICROS + 1, i64::MAX] {
        let at = Timestamp::from_micros(micros);
        let tasks = [
            ("runAt", task_with(|task| task.run_at = RunAt::At(at))),
            ("deadline", task_with(|task| task.deadline_at = Some(at))),
        ];
        assert_refused(&fixture, tasks).await;
    }
}

async fn invalid_json_is_refused_by_field(fixture: Arc<Fixture>) {
    let deep = "[".repeat(200) + &"]".repeat(200);
    let large = format!("[\"{}\"]", "x".repeat(300 * 1024));
    let numbers = format!("[{}0]", "1,".repeat(150 * 1024));

    for text in [
        "\"a\\u0000b\"",
        "\"\\ud800\"",
        "\"\\udc00x\"",
        "{",
        "",
        "1 2",
        "NaN",
        &deep,
        &large,
        &numbers,
    ] {
        let refused: Invalid = Json::parse("parameters", text).expect_err("the JSON is invalid");
        assert_eq!(refused.field, "parameters");
    }

    assert!(fixture.all_tasks().await.is_empty());
}

async fn an_invalid_reschedule_is_refused_by_field(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    let before = fixture.task(id).await;

    let change = |change: fn(&mut Reschedule)| with(Reschedule::default(), change);
    let changes = [
        (
            "runAt",
            change(|change| change.run_at = Some(Timestamp::from_micros(-1))),
        ),
        (
            "runAt",
            change(|change| change.run_at = Some(Timestamp::from_micros(i64::MAX))),
        ),
        ("priority", change(|change| change.priority = Some(0))),
        (
            "maxAttempts",
            change(|change| change.max_attempts = Some(0)),
        ),
    ];

    for (field, change) in changes {
        let answer = fixture
            .store
            .reschedule_task(&Access::All, id, &change)
            .await;
        assert_eq!(refused_field(answer), field);
    }

    assert_eq!(fixture.task(id).await, before);
}

async fn an_invalid_filter_is_refused_by_field(fixture: Arc<Fixture>) {
    const NEVER: Option<Timestamp> = Some(Timestamp::from_micros(i64::MAX));
    let filter = |change: fn(&mut TaskFilter)| with(TaskFilter::default(), change);
    let bad = || Some("a\0b".to_owned());

    let filters = [
        (
            "userId",
            with(TaskFilter::default(), |filter| filter.owner = bad()),
        ),
        (
            "taskKey",
            with(TaskFilter::default(), |filter| filter.task_key = bad()),
        ),
        (
            "taskType",
            filter(|filter| filter.task_types = vec!["a'b".to_owned()]),
        ),
        (
            "createdAfter",
            filter(|filter| filter.created_after = NEVER),
        ),
        (
            "createdBefore",
            filter(|filter| filter.created_before = NEVER),
        ),
        ("dueAfter", filter(|filter| filter.due_after = NEVER)),
        ("dueBefore", filter(|filter| filter.due_before = NEVER)),
    ];

    let page = PageRequest::first(1);
    for (field, filter) in filters {
        let answer = fixture.store.list_tasks(&Access::All, &filter, &page).await;
        assert_eq!(refused_field(answer), field);
    }
}

async fn invalid_reports_are_refused_by_field(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    let before = fixture.task(lease.task_id).await;
    let with_url = |url: String| AttemptEnd::Completed {
        result: None,
        result_url: Some(url),
    };

    let outcomes = [
        (with_url("x".repeat(bounds::URL_BYTES + 1)), "resultUrl"),
        (with_url("https://a\0b".to_owned()), "resultUrl"),
        (
            AttemptEnd::Failed {
                failure: failure("it broke"),
                retry_in_ms: Some(u64::MAX),
            },
            "retryIn",
        ),
        (
            AttemptEnd::Snoozed {
                reason: None,
                delay_ms: u64::MAX,
            },
            "delay",
        ),
    ];

    for (outcome, field) in outcomes {
        let report = AttemptReport {
            lease,
            end: outcome,
        };
        let answer = fixture.store.finish_tasks(&[report]).await;
        assert_eq!(refused_field(answer), field);
    }

    assert_eq!(fixture.task(lease.task_id).await, before);
}

async fn an_unknown_owner_finds_nothing(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    let long = "x".repeat(10_000);
    for owner in ["", "a\0b", "U-1", "u-1 ", "u_1", "%", &long] {
        let access = Access::Owner(owner.to_owned());
        let answer = fixture.store.get_task(&access, id).await;
        assert!(
            matches!(answer, Err(StoreError::NotFound | StoreError::Invalid(_))),
            "{answer:?}"
        );

        let filter = TaskFilter::default();
        let page = PageRequest::first(10);
        match fixture.store.list_tasks(&access, &filter, &page).await {
            Ok(page) => assert!(page.items.is_empty()),
            Err(StoreError::Invalid(_)) => {}
            Err(error) => panic!("{owner:?}: {error}"),
        }
    }
}
