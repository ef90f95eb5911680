//! Bad and strange input: refused with the name of the field, or kept and found exactly; never a crash.

use std::sync::Arc;

use longhaul_domain::{
    Idempotency, Invalid, Json, NewTask, RetryPolicy, RunAt, StoreError, TaskId, Timestamp, bounds,
    contract::store::{Access, Failure, Outcome},
    filter::{PageRequest, SortOrder, TaskFilter},
    lifecycle::reschedule::Reschedule,
};

use super::{
    case::{Case, cases},
    support::{
        HOUR_MS, KIND, MANY, QUEUE, claim_request, ids_of, json, new_task, random_node_id,
        refused_field,
    },
};
use crate::fixture::Fixture;

pub(super) fn cases() -> Vec<Case> {
    cases![
        names_that_no_store_keeps_are_refused_by_field,
        labels_outside_their_alphabet_are_refused_by_field,
        numbers_out_of_range_are_refused_by_field,
        absurd_times_are_refused_by_field,
        the_first_and_last_moments_are_kept,
        json_that_no_store_keeps_is_refused_by_field,
        the_largest_json_is_kept_to_the_letter,
        strange_names_are_kept_and_found_exactly,
        strange_keys_keep_their_promises_apart,
        strange_labels_are_told_apart,
        strange_errors_urls_and_nodes_are_kept,
        a_rescheduling_that_does_not_fit_is_refused_by_field,
        a_filter_that_nothing_can_match_is_refused_by_field,
        reports_that_do_not_fit_are_refused_by_field,
        an_access_that_owns_nothing_finds_nothing,
    ]
}

/// Text that is allowed and that careless code or a lenient collation gets wrong. All differ from each other.
pub(super) const STRANGE: [&str; 30] = [
    "A",
    "a",
    "x",
    "x ",
    " x",
    "e",
    "é",
    "e\u{301}",
    "ss",
    "ß",
    "I",
    "ı",
    "'; DROP TABLE tasks; --",
    "\"",
    "\\",
    "\\'",
    "%_",
    "%",
    "_",
    "NULL",
    "null",
    "0",
    "00",
    "$1",
    "?",
    ":name",
    "{}",
    "😀",
    "\u{feff}",
    "\u{202e}abc",
];

/// Text that is refused wherever a name is asked for.
fn refused_names() -> [String; 6] {
    ["", "a\0b", "a\nb", "a\u{7f}", "\u{85}"]
        .map(str::to_owned)
        .into_iter()
        .chain(["x".repeat(bounds::NAME_BYTES + 1)])
        .collect::<Vec<_>>()
        .try_into()
        .expect("six of them")
}

async fn refused_submit(fixture: &Fixture, task: NewTask) -> &'static str {
    refused_field(fixture.store.submit_task(task).await)
}

async fn names_that_no_store_keeps_are_refused_by_field(fixture: Arc<Fixture>) {
    for name in refused_names() {
        let some = Some(name.clone());
        assert_eq!(
            refused_submit(
                &fixture,
                NewTask {
                    owner: name.clone().into(),
                    ..new_task()
                }
            )
            .await,
            "userId"
        );
        assert_eq!(
            refused_submit(
                &fixture,
                NewTask {
                    tier: some.clone(),
                    ..new_task()
                }
            )
            .await,
            "tier"
        );
        assert_eq!(
            refused_submit(
                &fixture,
                NewTask {
                    task_key: some.clone(),
                    ..new_task()
                }
            )
            .await,
            "taskKey"
        );
        let task = NewTask {
            correlation_id: some.clone(),
            ..new_task()
        };
        assert_eq!(refused_submit(&fixture, task).await, "correlationId");
        let task = NewTask {
            trace_context: some,
            ..new_task()
        };
        assert_eq!(refused_submit(&fixture, task).await, "traceContext");
        let idempotency = Some(Idempotency {
            key: name.clone(),
            digest: [0; 32],
            ttl_ms: 1,
        });
        assert_eq!(
            refused_submit(
                &fixture,
                NewTask {
                    idempotency,
                    ..new_task()
                }
            )
            .await,
            "Idempotency-Key"
        );
        let node = random_node_id();
        assert_eq!(
            refused_field(
                fixture
                    .store
                    .register_node(node, &name, "host-1", None)
                    .await
            ),
            "nodeName"
        );
        assert_eq!(
            refused_field(
                fixture
                    .store
                    .register_node(node, "node-1", &name, None)
                    .await
            ),
            "host"
        );
    }
    assert!(
        fixture.all_tasks().await.is_empty()
            && fixture.store.list_nodes().await.unwrap().is_empty()
    );
}

async fn labels_outside_their_alphabet_are_refused_by_field(fixture: Arc<Fixture>) {
    let node = fixture.node().await;
    let long = "x".repeat(bounds::LABEL_BYTES + 1);
    for label in [
        "", " ", "a b", "é", "a'b", "a\0", "a\n", "a;b", "a%", "a\\b", "😀", &long,
    ] {
        let task = NewTask {
            task_type: label.into(),
            ..new_task()
        };
        assert_eq!(refused_submit(&fixture, task).await, "taskType");
        assert_eq!(
            refused_submit(
                &fixture,
                NewTask {
                    queue: label.into(),
                    ..new_task()
                }
            )
            .await,
            "queue"
        );
        assert_eq!(
            refused_field(fixture.store.pause_queue(label).await),
            "queue"
        );
        assert_eq!(
            refused_field(fixture.store.resume_queue(label).await),
            "queue"
        );
        let request = claim_request(node, &[QUEUE, label], &[KIND], 1);
        assert_eq!(
            refused_field(fixture.store.claim_tasks(&request).await),
            "queue"
        );
        let request = claim_request(node, &[QUEUE], &[label], 1);
        assert_eq!(
            refused_field(fixture.store.claim_tasks(&request).await),
            "taskType"
        );
    }
    assert!(
        fixture.store.list_queues().await.unwrap().is_empty(),
        "what is refused leaves no queue behind"
    );
}

async fn numbers_out_of_range_are_refused_by_field(fixture: Arc<Fixture>) {
    for priority in [0, 10, 255] {
        assert_eq!(
            refused_submit(
                &fixture,
                NewTask {
                    priority,
                    ..new_task()
                }
            )
            .await,
            "priority"
        );
    }
    for max_attempts in [0, 1_001, u32::MAX] {
        assert_eq!(
            refused_submit(
                &fixture,
                NewTask {
                    max_attempts,
                    ..new_task()
                }
            )
            .await,
            "maxAttempts"
        );
    }
    let retries = [
        (
            RetryPolicy {
                factor: 0.5,
                ..RetryPolicy::default()
            },
            "retry.factor",
        ),
        (
            RetryPolicy {
                factor: f64::NAN,
                ..RetryPolicy::default()
            },
            "retry.factor",
        ),
        (
            RetryPolicy {
                jitter: f64::INFINITY,
                ..RetryPolicy::default()
            },
            "retry.jitter",
        ),
        (
            RetryPolicy {
                jitter: -0.1,
                ..RetryPolicy::default()
            },
            "retry.jitter",
        ),
        (
            RetryPolicy {
                initial_ms: u64::MAX,
                ..RetryPolicy::default()
            },
            "retry.initialMs",
        ),
        (
            RetryPolicy {
                max_ms: u64::MAX,
                ..RetryPolicy::default()
            },
            "retry.maxMs",
        ),
    ];
    for (retry, field) in retries {
        assert_eq!(
            refused_submit(
                &fixture,
                NewTask {
                    retry,
                    ..new_task()
                }
            )
            .await,
            field
        );
    }
    for ms in [bounds::DURATION_MS + 1, u64::MAX] {
        assert_eq!(
            refused_submit(
                &fixture,
                NewTask {
                    timeout_ms: Some(ms),
                    ..new_task()
                }
            )
            .await,
            "timeout"
        );
        assert_eq!(
            refused_submit(
                &fixture,
                NewTask {
                    run_at: RunAt::AfterMs(ms),
                    ..new_task()
                }
            )
            .await,
            "delay"
        );
        let idempotency = Some(Idempotency {
            key: "k".to_owned(),
            digest: [0; 32],
            ttl_ms: ms,
        });
        assert_eq!(
            refused_submit(
                &fixture,
                NewTask {
                    idempotency,
                    ..new_task()
                }
            )
            .await,
            "idempotencyTtl"
        );
    }
}

/// 9999-12-31T23:59:59Z in microseconds.
const LAST_MICROS: i64 = 253_402_300_799_000_000;

async fn absurd_times_are_refused_by_field(fixture: Arc<Fixture>) {
    for micros in [-1, i64::MIN, LAST_MICROS + 1, i64::MAX] {
        let at = Timestamp::from_micros(micros);
        assert_eq!(
            refused_submit(
                &fixture,
                NewTask {
                    run_at: RunAt::At(at),
                    ..new_task()
                }
            )
            .await,
            "runAt"
        );
        assert_eq!(
            refused_submit(
                &fixture,
                NewTask {
                    deadline_at: Some(at),
                    ..new_task()
                }
            )
            .await,
            "deadline"
        );
    }
}

async fn the_first_and_last_moments_are_kept(fixture: Arc<Fixture>) {
    for micros in [0, 1, LAST_MICROS - 1, LAST_MICROS] {
        let at = Timestamp::from_micros(micros);
        let id = fixture
            .submit(NewTask {
                run_at: RunAt::At(at),
                deadline_at: Some(at),
                ..new_task()
            })
            .await;
        let task = fixture.task(id).await;
        assert_eq!((task.due_at, task.deadline_at), (at, Some(at)));
    }
    let longest = NewTask {
        run_at: RunAt::AfterMs(bounds::DURATION_MS),
        timeout_ms: Some(bounds::DURATION_MS),
        ..new_task()
    };
    let task = fixture.task(fixture.submit(longest).await).await;
    assert_eq!(task.due_at, task.created_at.plus_ms(bounds::DURATION_MS));
    let node = fixture.node().await;
    assert_eq!(
        fixture.claim(node, MANY).await.len(),
        2,
        "the first moments have passed, the last have not come"
    );
}

async fn json_that_no_store_keeps_is_refused_by_field(fixture: Arc<Fixture>) {
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
        let refused: Invalid = Json::parse("parameters", text).expect_err("no store would keep it");
        assert_eq!(refused.field, "parameters");
    }
    assert!(fixture.all_tasks().await.is_empty());
}

async fn the_largest_json_is_kept_to_the_letter(fixture: Arc<Fixture>) {
    let strings = vec![format!("\"{}\"", "é".repeat(32 * 1024)); 3].join(",");
    let large = format!(
        "[{strings}{}]",
        " ".repeat(bounds::JSON_BYTES - strings.len() - 2)
    );
    assert_eq!(large.len(), bounds::JSON_BYTES);
    let deep = "[".repeat(64) + &"]".repeat(64);
    let keys: Vec<String> = (0..10_000)
        .map(|number| format!("\"{number}\":0"))
        .collect();
    let wide = format!("{{{}}}", keys.join(","));
    for text in [large.as_str(), &deep, &wide] {
        let lease = fixture
            .start(NewTask {
                parameters: json(text),
                memo: Some(json(text)),
                ..new_task()
            })
            .await;
        fixture
            .store
            .save_progress(&[(lease, json(text))])
            .await
            .unwrap();
        fixture
            .store
            .save_checkpoint(&lease, &json(text))
            .await
            .unwrap();
        fixture
            .finish(
                lease,
                Outcome::Completed {
                    result: Some(json(text)),
                    result_url: None,
                },
            )
            .await;
        let task = fixture.task(lease.task_id).await;
        assert!(
            task.parameters.as_str() == text,
            "parameters of {} bytes",
            text.len()
        );
        for kept in [task.memo, task.progress, task.checkpoint, task.result] {
            assert!(
                kept.is_some_and(|kept| kept.as_str() == text),
                "{} bytes",
                text.len()
            );
        }
    }
}

async fn strange_names_are_kept_and_found_exactly(fixture: Arc<Fixture>) {
    let longest = "é".repeat(bounds::NAME_BYTES / 2);
    let names: Vec<&str> = STRANGE.into_iter().chain([longest.as_str()]).collect();
    let mut ids: Vec<TaskId> = Vec::new();
    for name in &names {
        let some = Some((*name).to_owned());
        let task = NewTask {
            owner: (*name).into(),
            tier: some.clone(),
            task_key: some.clone(),
            correlation_id: some.clone(),
            trace_context: some,
            parameters: Json::from_value("parameters", name).unwrap(),
            ..new_task()
        };
        ids.push(fixture.submit(task).await);
    }
    for (name, id) in names.iter().zip(&ids) {
        let task = fixture.task(*id).await;
        assert_eq!(task.owner, *name);
        for kept in [
            task.tier,
            task.task_key,
            task.correlation_id,
            task.trace_context,
        ] {
            assert_eq!(kept.as_deref(), Some(*name));
        }
        assert_eq!(task.parameters.read::<String>().unwrap(), *name);
        let by_owner = TaskFilter {
            owner: Some((*name).to_owned()),
            ..TaskFilter::default()
        };
        let by_key = TaskFilter {
            task_key: Some((*name).to_owned()),
            ..TaskFilter::default()
        };
        for filter in [by_owner, by_key] {
            let found = fixture
                .list(&Access::All, &filter, SortOrder::OldestFirst, MANY)
                .await;
            assert_eq!(
                ids_of(&found),
                [*id],
                "{name:?} finds itself and nothing else"
            );
        }
        let access = Access::Owner((*name).to_owned());
        let seen = fixture
            .list(
                &access,
                &TaskFilter::default(),
                SortOrder::OldestFirst,
                MANY,
            )
            .await;
        assert_eq!(
            ids_of(&seen),
            [*id],
            "{name:?} sees its own and nothing else"
        );
    }
}

async fn strange_keys_keep_their_promises_apart(fixture: Arc<Fixture>) {
    let keyed = |key: &str| {
        let idempotency = Some(Idempotency {
            key: key.to_owned(),
            digest: [1; 32],
            ttl_ms: HOUR_MS,
        });
        NewTask {
            idempotency,
            ..new_task()
        }
    };
    let mut ids = Vec::new();
    for key in STRANGE {
        let answer = fixture.store.submit_task(keyed(key)).await.unwrap();
        assert!(!answer.repeated, "{key:?} is a key of its own");
        ids.push(answer.task_id);
    }
    for (key, id) in STRANGE.into_iter().zip(ids) {
        let answer = fixture.store.submit_task(keyed(key)).await.unwrap();
        assert_eq!((answer.task_id, answer.repeated), (id, true), "{key:?}");
    }
}

async fn strange_labels_are_told_apart(fixture: Arc<Fixture>) {
    let longest = "Z".repeat(bounds::LABEL_BYTES);
    for label in [
        "A", "a", "a.b", "a:b", "a/b", "a-b", "a_b", "aXb", "0", "00", "-", &longest,
    ] {
        let id = fixture
            .submit(NewTask {
                queue: label.into(),
                task_type: label.into(),
                ..new_task()
            })
            .await;
        let by_type = TaskFilter {
            task_types: vec![label.to_owned()],
            ..TaskFilter::default()
        };
        let by_queue = TaskFilter {
            queues: vec![label.to_owned()],
            ..TaskFilter::default()
        };
        for filter in [by_type, by_queue] {
            assert_eq!(
                ids_of(
                    &fixture
                        .list(&Access::All, &filter, SortOrder::OldestFirst, MANY)
                        .await
                ),
                [id]
            );
        }
    }
    fixture.store.pause_queue("A").await.unwrap();
    let node = fixture.node().await;
    assert_eq!(
        fixture
            .claim_from(node, &["A", "a"], &["A", "a"], MANY)
            .await[0]
            .queue,
        "a"
    );
    assert!(
        fixture
            .claim_from(node, &["a.b"], &["aXb"], MANY)
            .await
            .is_empty()
    );
}

async fn strange_errors_urls_and_nodes_are_kept(fixture: Arc<Fixture>) {
    for text in STRANGE {
        let node = random_node_id();
        fixture
            .store
            .register_node(node, text, text, None)
            .await
            .unwrap();
        let nodes = fixture.store.list_nodes().await.unwrap();
        let listed = nodes
            .iter()
            .find(|listed| listed.id == node)
            .expect("it is registered");
        assert_eq!((listed.name.as_str(), listed.host.as_str()), (text, text));
        let failed = fixture.start(new_task()).await;
        let told = text.to_owned();
        let failure = Failure {
            class: told.clone(),
            message: format!("{text}\n\t"),
            detail: Some(told.clone()),
        };
        fixture
            .finish(
                failed,
                Outcome::Failed {
                    failure: failure.clone(),
                    retry_in_ms: None,
                },
            )
            .await;
        let task = fixture.task(failed.task_id).await;
        assert_eq!(task.error, Some(failure.at(task.finished_at.unwrap(), 1)));
        let done = fixture.start(new_task()).await;
        fixture
            .finish(
                done,
                Outcome::Completed {
                    result: None,
                    result_url: Some(told.clone()),
                },
            )
            .await;
        assert_eq!(fixture.task(done.task_id).await.result_url, Some(told));
    }
}

async fn a_rescheduling_that_does_not_fit_is_refused_by_field(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    let before = fixture.task(id).await;
    let changes = [
        (
            Reschedule {
                run_at: Some(Timestamp::from_micros(-1)),
                ..Reschedule::default()
            },
            "runAt",
        ),
        (
            Reschedule {
                run_at: Some(Timestamp::from_micros(i64::MAX)),
                ..Reschedule::default()
            },
            "runAt",
        ),
        (
            Reschedule {
                priority: Some(0),
                ..Reschedule::default()
            },
            "priority",
        ),
        (
            Reschedule {
                max_attempts: Some(0),
                ..Reschedule::default()
            },
            "maxAttempts",
        ),
        (
            Reschedule {
                queue: Some("a b".to_owned()),
                ..Reschedule::default()
            },
            "queue",
        ),
    ];
    for (change, field) in changes {
        assert_eq!(
            refused_field(
                fixture
                    .store
                    .reschedule_task(&Access::All, id, &change)
                    .await
            ),
            field
        );
    }
    assert_eq!(fixture.task(id).await, before);
}

async fn a_filter_that_nothing_can_match_is_refused_by_field(fixture: Arc<Fixture>) {
    let bad = Some("a\0b".to_owned());
    let never = Some(Timestamp::from_micros(i64::MAX));
    let any = TaskFilter::default;
    let filters = [
        (
            TaskFilter {
                owner: bad.clone(),
                ..any()
            },
            "userId",
        ),
        (
            TaskFilter {
                task_key: bad,
                ..any()
            },
            "taskKey",
        ),
        (
            TaskFilter {
                task_types: vec!["a'b".to_owned()],
                ..any()
            },
            "taskType",
        ),
        (
            TaskFilter {
                queues: vec![String::new()],
                ..any()
            },
            "queue",
        ),
        (
            TaskFilter {
                created_after: never,
                ..any()
            },
            "createdAfter",
        ),
        (
            TaskFilter {
                created_before: never,
                ..any()
            },
            "createdBefore",
        ),
        (
            TaskFilter {
                due_after: never,
                ..any()
            },
            "dueAfter",
        ),
        (
            TaskFilter {
                due_before: never,
                ..any()
            },
            "dueBefore",
        ),
    ];
    for (filter, field) in filters {
        let answer = fixture
            .store
            .list_tasks(&Access::All, &filter, &PageRequest::first(1))
            .await;
        assert_eq!(refused_field(answer), field);
    }
}

async fn reports_that_do_not_fit_are_refused_by_field(fixture: Arc<Fixture>) {
    let lease = fixture.start(new_task()).await;
    let before = fixture.task(lease.task_id).await;
    let failure = super::support::failure("it broke");
    let with_url = |url: String| Outcome::Completed {
        result: None,
        result_url: Some(url),
    };
    let outcomes = [
        (with_url("x".repeat(bounds::URL_BYTES + 1)), "resultUrl"),
        (with_url("https://a\0b".to_owned()), "resultUrl"),
        (
            Outcome::Failed {
                failure,
                retry_in_ms: Some(u64::MAX),
            },
            "retryIn",
        ),
        (
            Outcome::Snoozed {
                reason: None,
                delay_ms: u64::MAX,
            },
            "delay",
        ),
    ];
    for (outcome, field) in outcomes {
        let report = longhaul_domain::contract::store::Report { lease, outcome };
        assert_eq!(
            refused_field(fixture.store.finish_tasks(&[report]).await),
            field
        );
    }
    assert_eq!(fixture.task(lease.task_id).await, before);
}

async fn an_access_that_owns_nothing_finds_nothing(fixture: Arc<Fixture>) {
    let id = fixture.submit(new_task()).await;
    let long = "x".repeat(10_000);
    for owner in ["", "a\0b", "U-1", "u-1 ", "u_1", "%", &long] {
        let access = Access::Owner(owner.to_owned());
        let answer = fixture.store.get_task(&access, id).await;
        assert!(
            matches!(answer, Err(StoreError::NotFound | StoreError::Invalid(_))),
            "{answer:?}"
        );
        match fixture
            .store
            .list_tasks(&access, &TaskFilter::default(), &PageRequest::first(10))
            .await
        {
            Ok(page) => assert!(page.items.is_empty()),
            Err(StoreError::Invalid(_)) => {}
            Err(error) => panic!("{owner:?}: {error}"),
        }
    }
}
