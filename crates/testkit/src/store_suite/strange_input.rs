//! Strange but valid input: stored and found exactly as it was written.

use std::sync::Arc;

use longhaul_domain::{
    Idempotency, Json, NewTask, RunAt, TaskId, Timestamp, bounds,
    contract::store::{Access, AttemptEnd, Failure},
    filter::{SortOrder, TaskFilter},
};

use super::{
    bad_input::LAST_MICROS,
    case::{Case, cases},
    support::{HOUR_MS, MANY, ids_of, json, new_task, random_node_id},
};
use crate::{fixture::Fixture, names::queue_name};

pub(super) fn cases() -> Vec<Case> {
    cases![
        the_first_and_last_times_are_stored,
        the_largest_json_is_stored_unchanged,
        strange_names_are_stored_and_found_exactly,
        strange_idempotency_keys_are_distinct,
        strange_labels_are_distinct,
        strange_errors_urls_and_nodes_are_stored,
    ]
}

/// Valid text that careless code or a lenient collation gets wrong. All entries differ.
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

async fn the_first_and_last_times_are_stored(fixture: Arc<Fixture>) {
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
        "only the tasks with the first two times are due"
    );
}

async fn the_largest_json_is_stored_unchanged(fixture: Arc<Fixture>) {
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
                AttemptEnd::Completed {
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

        for stored in [task.memo, task.progress, task.checkpoint, task.result] {
            assert!(
                stored.is_some_and(|stored| stored.as_str() == text),
                "{} bytes",
                text.len()
            );
        }
    }
}

async fn strange_names_are_stored_and_found_exactly(fixture: Arc<Fixture>) {
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
        for stored in [
            task.tier,
            task.task_key,
            task.correlation_id,
            task.trace_context,
        ] {
            assert_eq!(stored.as_deref(), Some(*name));
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
            assert_eq!(ids_of(&found), [*id], "the filter finds {name:?} only");
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

        assert_eq!(ids_of(&seen), [*id], "{name:?} sees its own task only");
    }
}

async fn strange_idempotency_keys_are_distinct(fixture: Arc<Fixture>) {
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
        assert!(!answer.repeated, "{key:?} is a new key");
        ids.push(answer.task_id);
    }

    for (key, id) in STRANGE.into_iter().zip(ids) {
        let answer = fixture.store.submit_task(keyed(key)).await.unwrap();
        assert_eq!((answer.task_id, answer.repeated), (id, true), "{key:?}");
    }
}

async fn strange_labels_are_distinct(fixture: Arc<Fixture>) {
    let longest = "Z".repeat(bounds::LABEL_BYTES);
    for label in [
        "A", "a", "a.b", "a:b", "a/b", "a-b", "a_b", "aXb", "0", "00", "-", &longest,
    ] {
        let id = fixture
            .submit(NewTask {
                queue: queue_name(label),
                task_type: label.into(),
                ..new_task()
            })
            .await;
        let by_type = TaskFilter {
            task_types: vec![label.to_owned()],
            ..TaskFilter::default()
        };
        let by_queue = TaskFilter {
            queues: vec![queue_name(label)],
            ..TaskFilter::default()
        };

        for filter in [by_type, by_queue] {
            let found = fixture
                .list(&Access::All, &filter, SortOrder::OldestFirst, MANY)
                .await;
            assert_eq!(ids_of(&found), [id]);
        }
    }

    fixture.store.pause_queue(&queue_name("A")).await.unwrap();
    let node = fixture.node().await;
    let claimed = fixture
        .claim_from(node, &["A", "a"], &["A", "a"], MANY)
        .await;
    assert_eq!(claimed[0].queue, "a");

    let claimed = fixture.claim_from(node, &["a.b"], &["aXb"], MANY).await;
    assert!(claimed.is_empty());
}

async fn strange_errors_urls_and_nodes_are_stored(fixture: Arc<Fixture>) {
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
            .expect("the node is registered");

        assert_eq!((listed.name.as_str(), listed.host.as_str()), (text, text));

        let failed = fixture.start(new_task()).await;
        let failure = Failure {
            class: text.to_owned(),
            message: format!("{text}\n\t"),
            detail: Some(text.to_owned()),
        };

        fixture
            .finish(
                failed,
                AttemptEnd::Failed {
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
                AttemptEnd::Completed {
                    result: None,
                    result_url: Some(text.to_owned()),
                },
            )
            .await;

        let stored = fixture.task(done.task_id).await.result_url;
        assert_eq!(stored.as_deref(), Some(text));
    }
}
