//! Lists, children, attempts, logs and progress of tasks.

use libtest_mimic::Trial;
use longhaul::Status;
use serde_json::{Value, json};

use crate::database::Backend;
use crate::server::Server;
use crate::trial::on_every_store;

pub(crate) fn trials() -> Vec<Trial> {
    on_every_store![
        a_list_is_read_page_by_page_in_both_orders,
        a_list_is_filtered_by_every_parameter,
        a_parent_counts_its_children_by_status,
        attempts_and_log_lines_show_the_history,
        dead_letters_are_listed_with_their_error,
        progress_is_visible_while_a_task_runs
    ]
}

fn ids(page: &Value) -> Vec<String> {
    page["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| task["taskId"].as_str().unwrap().to_owned())
        .collect()
}

async fn a_list_is_read_page_by_page_in_both_orders(store: Backend) {
    let server = Server::start(store).await;
    let mut made = Vec::new();
    for _ in 0..5 {
        made.push(server.submit_for_later("default").await);
    }

    for (sort, wanted) in [
        ("createdAt", made.clone()),
        ("-createdAt", made.iter().rev().cloned().collect::<Vec<_>>()),
    ] {
        let mut seen = Vec::new();
        let mut path = format!("/api/tasks?sort={sort}&size=2");
        loop {
            let page = server.get(path).await.expect(200);
            seen.extend(ids(&page));
            let Some(cursor) = page["nextCursor"].as_str() else {
                break;
            };
            path = format!("/api/tasks?sort={sort}&size=2&cursor={cursor}");
        }
        assert_eq!(seen, wanted);
    }

    let first = server
        .get("/api/tasks?sort=createdAt&size=2")
        .await
        .expect(200);
    let elsewhere = format!(
        "/api/tasks?size=2&cursor={}",
        first["nextCursor"].as_str().unwrap()
    );

    server.get(elsewhere).await.problem(400, "invalid_cursor");
}

async fn a_list_is_filtered_by_every_parameter(store: Backend) {
    let server = Server::start(store).await;
    let ended = server
        .submit("sample.echo", Value::Null, json!({ "taskKey": "k 1" }))
        .await;
    server.until_ended(&ended).await;
    let later = json!({ "delay": "1d", "queue": "own", "taskKey": "k 2" });
    let waiting = server
        .submit("sample.sleep", json!({ "ms": 1 }), later)
        .await;

    let moment = server.task(&waiting).await["createdAt"]
        .as_str()
        .unwrap()
        .to_owned();

    for (query, wanted) in [
        ("status=COMPLETED".to_owned(), vec![&ended]),
        ("status=QUEUED,RETRYING".to_owned(), vec![&waiting]),
        (
            "status=COMPLETED&status=QUEUED".to_owned(),
            vec![&waiting, &ended],
        ),
        ("taskType=sample.sleep".to_owned(), vec![&waiting]),
        ("queue=own".to_owned(), vec![&waiting]),
        ("taskKey=k%201".to_owned(), vec![&ended]),
        (format!("createdAfter={moment}"), vec![&waiting]),
        (format!("createdBefore={moment}"), vec![&ended]),
        (format!("dueAfter={moment}"), vec![&waiting]),
        (format!("dueBefore={moment}&status=COMPLETED"), vec![&ended]),
        (format!("parentTaskId={ended}"), vec![]),
        ("status=FAILED".to_owned(), vec![]),
    ] {
        let page = server.get(format!("/api/tasks?{query}")).await.expect(200);
        assert_eq!(ids(&page).iter().collect::<Vec<_>>(), wanted, "{query}");
    }
}

async fn a_parent_counts_its_children_by_status(store: Backend) {
    let server = Server::start(store).await;
    let parent = server
        .submit(
            "sample.fanout",
            json!({ "children": 5, "failEvery": 2 }),
            json!({}),
        )
        .await;

    server.until_ended(&parent).await;
    let task = server.task(&parent).await;
    assert_eq!(
        (&task["status"], &task["result"]),
        (
            &json!("COMPLETED_WITH_ERRORS"),
            &json!({ "completed": 3, "failed": 2 })
        )
    );

    assert_eq!(
        (&task["children"]["total"], &task["children"]["failed"]),
        (&json!(5), &json!(2))
    );

    let path = format!("/api/tasks/{parent}/children");
    let first = server.get(format!("{path}?size=3")).await.expect(200);
    let rest = server
        .get(format!(
            "{path}?size=3&cursor={}",
            first["nextCursor"].as_str().unwrap()
        ))
        .await
        .expect(200);
    assert_eq!(
        (ids(&first).len(), ids(&rest).len(), &rest["nextCursor"]),
        (3, 2, &Value::Null)
    );

    let failed = server
        .get(format!("{path}?status=FAILED"))
        .await
        .expect(200);
    assert_eq!(ids(&failed).len(), 2);
    assert_eq!(failed["items"][0]["parentTaskId"], parent.as_str());
}

async fn attempts_and_log_lines_show_the_history(store: Backend) {
    let server = Server::start(store).await;
    let failing = json!({ "kind": "retryable", "times": 2, "retryAfterMs": 1 });
    let id = server.submit("sample.fail", failing, json!({})).await;
    server.until_status(&id, Status::Completed).await;
    assert_eq!(server.task(&id).await["result"], json!({ "attempt": 3 }));
    let page = server
        .get(format!("/api/tasks/{id}/attempts"))
        .await
        .expect(200);

    let outcomes: Vec<&Value> = page["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["outcome"])
        .collect();
    assert_eq!(outcomes, ["failed", "failed", "completed"]);
    assert_eq!(
        (&page["items"][0]["error"]["class"], &page["nextCursor"]),
        (&json!("retryable"), &Value::Null)
    );
    let first = server
        .get(format!("/api/tasks/{id}/attempts?size=2"))
        .await
        .expect(200);

    let cursor = first["nextCursor"].as_str().unwrap();
    let rest = server
        .get(format!("/api/tasks/{id}/attempts?size=2&cursor={cursor}"))
        .await
        .expect(200);
    assert_eq!(
        (
            rest["items"].as_array().unwrap().len(),
            &rest["items"][0]["attempt"]
        ),
        (1, &json!(3))
    );

    let logs = server
        .get(format!("/api/tasks/{id}/logs?size=1"))
        .await
        .expect(200);
    assert_eq!(
        (&logs["items"][0]["level"], &logs["items"][0]["attempt"]),
        (&json!("warn"), &json!(1))
    );
    let cursor = logs["nextCursor"].as_str().unwrap();

    let more = server
        .get(format!("/api/tasks/{id}/logs?cursor={cursor}"))
        .await
        .expect(200);
    assert_eq!(more["items"][0]["attempt"], 2);
    server
        .get(format!("/api/tasks/{id}/logs?cursor=x"))
        .await
        .problem(400, "invalid_cursor");
}

async fn dead_letters_are_listed_with_their_error(store: Backend) {
    let server = Server::start(store).await;
    let failing = json!({ "kind": "retryable", "retryAfterMs": 1 });
    let dead = server
        .submit("sample.fail", failing, json!({ "maxAttempts": 2 }))
        .await;
    let failed = server
        .submit("sample.fail", json!({ "kind": "fatal" }), json!({}))
        .await;
    let panicked = server
        .submit(
            "sample.fail",
            json!({ "kind": "panic" }),
            json!({ "maxAttempts": 1 }),
        )
        .await;

    server.until_status(&dead, Status::DeadLetter).await;
    server.until_status(&failed, Status::Failed).await;
    server.until_ended(&panicked).await;

    let page = server
        .get("/api/tasks/dead-letter?taskType=sample.fail")
        .await
        .expect(200);
    assert!(
        ids(&page).contains(&dead) && !ids(&page).contains(&failed),
        "{page}"
    );
    assert!(page["items"][0]["errorMessage"].is_string());
}

async fn progress_is_visible_while_a_task_runs(store: Backend) {
    let server = Server::start(store).await;
    let id = server
        .submit(
            "sample.progress",
            json!({ "steps": 100_000, "stepMs": 5 }),
            json!({}),
        )
        .await;

    let mut events = server.longhaul.events(longhaul::Subscription {
        task_id: None,
        owner: None,
    });

    loop {
        let received = tokio::time::timeout(crate::client::DEADLINE, events.next())
            .await
            .unwrap()
            .unwrap();
        if let longhaul::Received::Event(event) = received
            && event.event == longhaul::EventKind::Progress
        {
            break;
        }
    }

    let percent = server.task(&id).await["progress"]["percent"]
        .as_f64()
        .unwrap();
    assert!(percent > 0.0 && percent < 100.0);

    let running = server.get("/api/tasks?status=RUNNING").await.expect(200);
    assert!(running["items"][0]["progress"]["percent"].is_f64());
    server
        .send(crate::client::Call::new(
            "DELETE",
            format!("/api/tasks/{id}"),
        ))
        .await
        .expect(204);
}
