//! Event streams of one task and of all tasks of a user.

use libtest_mimic::Trial;
use longhaul::Status;
use serde_json::json;

use crate::database::Backend;
use crate::trial::on_every_store;
use crate::{client::Call, server::Server};

pub(crate) fn trials() -> Vec<Trial> {
    on_every_store![
        a_task_is_followed_from_its_current_state_to_its_end,
        an_owner_receives_only_events_of_their_own_tasks,
        the_stream_of_an_ended_task_shows_its_end_and_stays_open,
        a_lagging_subscriber_receives_the_current_state_again
    ]
}

async fn a_task_is_followed_from_its_current_state_to_its_end(store: Backend) {
    let server = Server::start(store).await;
    server
        .send(Call::new("POST", "/api/queues/free_default/pause"))
        .await
        .expect(204);
    let id = server
        .submit(
            "sample.progress",
            json!({ "steps": 20, "stepMs": 5 }),
            json!({}),
        )
        .await;

    let mut events = Call::get(format!("/api/tasks/{id}/events"))
        .follow(server.address)
        .await;
    assert_eq!(events.block().await.unwrap(), "retry: 2000");

    let state = events.next().await.unwrap();
    assert_eq!(
        (state.name.as_str(), &state.data["status"]),
        ("state", &json!("QUEUED"))
    );
    assert_eq!(
        (&state.data["taskId"], &state.data["version"]),
        (&json!(id), &json!(1))
    );
    server
        .send(Call::new("POST", "/api/queues/free_default/resume"))
        .await
        .expect(204);

    let received = events.until("completed").await;
    let names: Vec<&str> = received.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names[0], "started");
    assert!(names.contains(&"progress"), "{names:?}");
    let versions: Vec<u64> = received
        .iter()
        .map(|event| event.data["version"].as_u64().unwrap())
        .collect();
    assert!(versions.is_sorted(), "{versions:?}");

    let last = received.last().unwrap();
    assert_eq!(
        (&last.data["status"], &last.data["event"]),
        (&json!("COMPLETED"), &json!("completed"))
    );
    assert_eq!(
        last.data["version"],
        server.task(&id).await["version"],
        "the version is the task's own"
    );

    assert_eq!(
        last.id.as_deref(),
        Some(format!("{id}-{}-completed", last.data["version"]).as_str())
    );
}

async fn an_owner_receives_only_events_of_their_own_tasks(store: Backend) {
    let server = Server::start(store).await;
    let open = server.submit_for_later("u-1").await;
    let mut events = Call::get("/api/events")
        .user("u-1")
        .follow(server.address)
        .await;

    let state = events.next().await.unwrap();
    assert_eq!(
        (state.name.as_str(), &state.data["items"][0]["taskId"]),
        ("state", &json!(open))
    );
    assert_eq!(state.data["items"].as_array().unwrap().len(), 1);
    let foreign = server
        .submit_as("u-2", "sample.echo", json!(1), json!({}))
        .await;

    server.until_ended(&foreign).await;

    let own = server
        .submit_as("u-1", "sample.echo", json!(1), json!({}))
        .await;
    let received = events.until("completed").await;
    assert!(
        received
            .iter()
            .all(|event| event.data["taskId"] == json!(own)),
        "{received:?}"
    );
    let mut names: Vec<&str> = received.iter().map(|event| event.name.as_str()).collect();

    names.sort_unstable();
    assert_eq!(names, ["completed", "started", "submitted"]);
    server
        .send(Call::new("DELETE", format!("/api/tasks/{open}")).user("u-1"))
        .await
        .expect(204);
    assert_eq!(
        events.until("cancelled").await.last().unwrap().data["taskId"],
        json!(open)
    );
}

async fn the_stream_of_an_ended_task_shows_its_end_and_stays_open(store: Backend) {
    let server = Server::start(store).await;
    let id = server
        .submit(
            "sample.fail",
            json!({ "kind": "fatal", "times": 1 }),
            json!({}),
        )
        .await;

    server.until_status(&id, Status::Failed).await;

    let mut events = Call::get(format!("/api/tasks/{id}/events"))
        .follow(server.address)
        .await;
    let state = events.next().await.unwrap();
    assert_eq!(
        (
            &state.data["status"],
            state.data["errorMessage"].is_string()
        ),
        (&json!("FAILED"), true)
    );

    server
        .send(Call::new("POST", format!("/api/tasks/{id}/retry")))
        .await
        .expect(202);
    let names: Vec<String> = events
        .until("completed")
        .await
        .into_iter()
        .map(|event| event.name)
        .collect();
    assert!(names.contains(&"started".to_owned()), "{names:?}");
}

async fn a_lagging_subscriber_receives_the_current_state_again(store: Backend) {
    let server = Server::start(store).await;
    let id = server.submit_for_later("default").await;
    let mut events = Call::get(format!("/api/tasks/{id}/events"))
        .follow(server.address)
        .await;
    assert_eq!(events.next().await.unwrap().name, "state");
    // More events than the bus buffers. One thread publishes them all, so that the subscriber
    // cannot read in between.
    let task = server.until(&id, |_| true).await;
    for _ in 0..200_000 {
        server
            .longhaul
            .engine()
            .publish_event(&task, longhaul::EventKind::Rescheduled);
    }

    let received = events.until("state").await;
    assert_eq!(received.last().unwrap().data["taskId"], json!(id));
}
