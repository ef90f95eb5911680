//! Changes of tasks: patch, cancel, retry, and all three in bulk.

use libtest_mimic::Trial;
use longhaul::{
    Status,
    server::{IdentityMode, ListenerSettings},
};
use serde_json::{Value, json};

use crate::database::Backend;
use crate::trial::on_every_store;
use crate::{client::Call, server::Server};

pub(crate) fn trials() -> Vec<Trial> {
    on_every_store![
        a_queued_task_can_be_changed_and_an_ended_one_cannot,
        a_cancel_ends_a_running_task_and_does_not_change_an_ended_one,
        a_failed_task_can_be_retried_and_a_completed_one_cannot,
        a_retry_of_failed_children_runs_only_those,
        matching_tasks_are_changed_in_bulk,
        a_bulk_cancel_spares_running_tasks_of_types_that_are_not_cancellable
    ]
}

fn patch(id: &str, body: Value) -> Call {
    Call::new("PATCH", format!("/api/tasks/{id}")).json(&body)
}

async fn a_queued_task_can_be_changed_and_an_ended_one_cannot(store: Backend) {
    let server = Server::start(store).await;
    let id = server.submit_for_later("default").await;
    let change =
        json!({ "priority": 8, "maxAttempts": 9, "queue": "own", "runAt": "2999-01-01T00:00:00Z" });

    let task = server.send(patch(&id, change)).await.expect(200);
    assert_eq!(
        (&task["priority"], &task["maxAttempts"], &task["queue"]),
        (&json!(8), &json!(9), &json!("own"))
    );
    assert_eq!(
        (&task["runAt"], &task["version"]),
        (&json!("2999-01-01T00:00:00Z"), &json!(2))
    );

    for (body, field) in [
        (json!({}), "change"),
        (json!({ "priority": 0 }), "priority"),
        (json!({ "status": "FAILED" }), "status"),
    ] {
        assert_eq!(
            server
                .send(patch(&id, body))
                .await
                .problem(422, "invalid_field")["field"],
            field
        );
    }

    server
        .send(patch(
            &id,
            json!({ "queue": "free_default", "runAt": "2001-01-01T00:00:00Z" }),
        ))
        .await
        .expect(200);

    server.until_ended(&id).await;
    server
        .send(patch(&id, json!({ "priority": 3 })))
        .await
        .problem(409, "wrong_state");
}

async fn a_cancel_ends_a_running_task_and_does_not_change_an_ended_one(store: Backend) {
    let server = Server::start(store).await;
    let id = server
        .submit("sample.sleep", json!({ "ms": 3_600_000 }), json!({}))
        .await;
    server.until_status(&id, Status::Running).await;
    let cancel = || server.send(Call::new("DELETE", format!("/api/tasks/{id}")));

    cancel().await.expect(204);
    assert_eq!(server.task(&id).await["status"], "CANCELLED");
    cancel().await.expect(204);
    let done = server.submit("sample.echo", json!(1), json!({})).await;
    server.until_ended(&done).await;
    server
        .send(Call::new("DELETE", format!("/api/tasks/{done}")))
        .await
        .expect(204);

    assert_eq!(server.task(&done).await["status"], "COMPLETED");
}

async fn a_failed_task_can_be_retried_and_a_completed_one_cannot(store: Backend) {
    let server = Server::start(store).await;
    let id = server
        .submit(
            "sample.fail",
            json!({ "kind": "fatal", "times": 1 }),
            json!({}),
        )
        .await;

    server.until_status(&id, Status::Failed).await;
    let retry = format!("/api/tasks/{id}/retry");
    let answer = server.send(Call::new("POST", &retry)).await.expect(202);
    assert_eq!(
        (&answer["taskId"], &answer["status"]),
        (&json!(id), &json!("QUEUED"))
    );
    server.until_status(&id, Status::Completed).await;
    assert_eq!(server.task(&id).await["result"], json!({ "attempt": 2 }));

    server
        .post(&retry, &json!({}))
        .await
        .problem(409, "wrong_state");

    let problem = server
        .post(&retry, &json!({ "scope": "everything" }))
        .await
        .problem(422, "invalid_field");
    assert_eq!(problem["field"], "scope");
    server
        .post(&retry, &json!({ "scope": "failedChildren" }))
        .await
        .expect(409);
}

async fn a_retry_of_failed_children_runs_only_those(store: Backend) {
    let server = Server::start(store).await;
    let id = server
        .submit(
            "sample.fanout",
            json!({ "children": 3, "failEvery": 3 }),
            json!({}),
        )
        .await;

    server.until_status(&id, Status::CompletedWithErrors).await;
    let children = |query: &'static str| server.get(format!("/api/tasks/{id}/children?{query}"));
    let failed = children("status=FAILED").await.expect(200);
    assert_eq!(failed["items"].as_array().unwrap().len(), 1);

    let answer = server
        .post(
            format!("/api/tasks/{id}/retry"),
            &json!({ "scope": "failedChildren" }),
        )
        .await;
    assert_eq!(answer.expect(202)["status"], "WAITING");
    let child = failed["items"][0]["taskId"].as_str().unwrap();
    server
        .until(child, |task| task.attempt == 2 && task.status.is_ended())
        .await;

    let good = children("status=COMPLETED").await.expect(200);
    assert!(
        good["items"]
            .as_array()
            .unwrap()
            .iter()
            .all(|child| child["attempt"] == 1)
    );
}

async fn matching_tasks_are_changed_in_bulk(store: Backend) {
    let server = Server::start(store).await;
    for user in ["u-1", "u-1", "u-1", "u-2"] {
        server.submit_for_later(user).await;
    }

    let bulk = |what: &str, query: &str| {
        Call::new("POST", format!("/api/tasks/bulk/{what}?{query}")).user("u-1")
    };
    let moved = bulk("reschedule", "status=QUEUED").json(&json!({ "queue": "own", "priority": 5 }));

    let answer = server.send(moved).await.expect(200);
    assert_eq!(
        answer,
        json!({ "matched": 3, "changed": 3, "nextCursor": null })
    );

    let listed = server
        .send(Call::get("/api/tasks?queue=own").user("u-1"))
        .await
        .expect(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 3);
    let answer = server.send(bulk("cancel", "queue=own")).await.expect(200);
    assert_eq!(
        (&answer["matched"], &answer["changed"]),
        (&json!(3), &json!(3))
    );

    let answer = server
        .send(bulk("retry", "status=CANCELLED"))
        .await
        .expect(200);
    assert_eq!(
        (&answer["matched"], &answer["changed"]),
        (&json!(3), &json!(3))
    );

    let others = server
        .send(Call::get("/api/tasks?status=QUEUED").user("u-2"))
        .await
        .expect(200);
    assert_eq!(
        others["items"].as_array().unwrap().len(),
        1,
        "the task of another user did not change"
    );

    for what in ["cancel", "retry"] {
        server
            .send(bulk(what, ""))
            .await
            .problem(422, "invalid_field");
        let with_body = bulk(what, "status=QUEUED").json(&json!({ "status": "QUEUED" }));

        server.send(with_body).await.problem(422, "invalid_field");
        server
            .send(bulk(what, "stauts=QUEUED"))
            .await
            .problem(400, "invalid_filter");
    }

    let nothing = bulk("reschedule", "status=QUEUED").json(&json!({}));
    assert_eq!(
        server.send(nothing).await.problem(422, "invalid_field")["field"],
        "change"
    );

    let filter_in_the_body =
        bulk("reschedule", "status=QUEUED").json(&json!({ "status": "QUEUED", "priority": 2 }));
    assert_eq!(
        server
            .send(filter_in_the_body)
            .await
            .problem(422, "invalid_field")["field"],
        "status"
    );
}

async fn a_bulk_cancel_spares_running_tasks_of_types_that_are_not_cancellable(store: Backend) {
    let server = Server::start_as(
        store,
        IdentityMode::Dev,
        ListenerSettings::default(),
        |builder| builder.register(Steady),
    )
    .await;

    let stays = server.submit("test.steady", json!(null), json!({})).await;
    let goes = server
        .submit("sample.sleep", json!({ "ms": 3_600_000 }), json!({}))
        .await;
    server.until_status(&stays, longhaul::Status::Running).await;
    server.until_status(&goes, longhaul::Status::Running).await;

    let answer = server
        .send(Call::new("POST", "/api/tasks/bulk/cancel?status=RUNNING"))
        .await
        .expect(200);
    assert_eq!(
        (&answer["matched"], &answer["changed"]),
        (&json!(2), &json!(1))
    );

    server
        .until_status(&goes, longhaul::Status::Cancelled)
        .await;
    assert_eq!(server.task(&stays).await["status"], "RUNNING");
}

/// Runs until the process ends, and may not be cancelled.
struct Steady;

impl longhaul::Task for Steady {
    const TYPE: &'static str = "test.steady";
    const CANCELLABLE: bool = false;
    type Params = ();
    type Output = ();

    async fn run(&self, ctx: longhaul::Context<Self>) -> longhaul::Outcome<()> {
        ctx.cancelled().await;
        Err(longhaul::Stop::hand_back())
    }
}
