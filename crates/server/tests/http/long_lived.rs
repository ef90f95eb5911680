//! Long-lived connections and repeated requests: revoked tokens, changes of other processes, and
//! shutdown.

use std::time::Duration;

use futures::SinkExt as _;
use libtest_mimic::Trial;
use longhaul::{
    Access, Json, NewTask, TaskId,
    server::{IdentityMode, ListenerSettings},
};
use longhaul_domain::contract::store::TaskCommands as _;
use longhaul_testkit::names::queue_name;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use crate::database::Backend;
use crate::trial::on_every_store;
use crate::{
    client::{Call, DEADLINE},
    server::Server,
    socket::{Socket, connect},
    tokens::with,
};

pub(crate) fn trials() -> Vec<Trial> {
    on_every_store![
        a_socket_ends_when_its_token_is_revoked,
        naming_the_queue_of_another_tier_is_refused,
        an_offset_beyond_the_end_starts_the_stream_again,
        changes_of_another_process_are_shown_without_an_event,
        shutdown_does_not_wait_for_clients_that_do_not_read
    ]
}

const HOUR: u64 = 3_600_000;

async fn a_socket_ends_when_its_token_is_revoked(store: Backend) {
    let server = Server::with_tokens(store).await;
    let token = server.token(60, "u-1", &["tasks:read"], None, HOUR).await;
    let bearer = format!("Bearer {}", token.reveal());
    let mut socket = connect(&server, &[("authorization", &bearer)])
        .await
        .unwrap();

    socket
        .send(&json!({ "action": "subscribe", "all": true }))
        .await;
    socket.until(|message| message["type"] == "states").await;
    server
        .longhaul
        .engine()
        .tokens()
        .revoke_token(token.id())
        .await
        .unwrap();

    let closed = tokio::time::timeout(DEADLINE, socket.closed())
        .await
        .expect("an end in time");
    assert_eq!(
        (u16::from(closed.code), closed.reason.as_str()),
        (1008, "the token is no longer valid")
    );
}

async fn naming_the_queue_of_another_tier_is_refused(store: Backend) {
    let server = Server::with_tokens(store).await;
    let free = server
        .token(62, "u-1", &["tasks:write"], Some("free"), HOUR)
        .await;
    let vip = server
        .token(63, "u-2", &["tasks:write"], Some("vip"), HOUR)
        .await;
    let none = server.token(64, "u-3", &["tasks:write"], None, HOUR).await;
    let admin = server.token(65, "u-4", &["admin"], None, HOUR).await;

    let submit = |queue: &str| json!({ "taskType": "sample.echo", "delay": "1d", "queue": queue });
    let one = |token, queue| server.send(with(Call::post("/api/tasks", &submit(queue)), token));
    assert_eq!(
        one(&free, "vip_short").await.problem(422, "invalid_field")["field"],
        "queue"
    );
    one(&vip, "enterprise_exclusive")
        .await
        .problem(422, "invalid_field");

    one(&none, "vip_short").await.problem(422, "invalid_field");
    let open = [
        (&vip, "vip_long"),
        (&vip, "free_default"),
        (&free, "my-own"),
        (&none, "my-own"),
        (&admin, "vip_short"),
    ];
    for (token, queue) in open {
        one(token, queue).await.expect(202);
    }

    let batch = Call::post(
        "/api/tasks/batch",
        &json!({ "tasks": [submit("free_default"), submit("vip_long")] }),
    );
    assert_eq!(
        server
            .send(with(batch, &free))
            .await
            .problem(422, "invalid_field")["field"],
        "tasks[1].queue"
    );

    let id = one(&free, "free_default").await.expect(202)["taskId"]
        .as_str()
        .unwrap()
        .to_owned();
    let change = json!({ "queue": "enterprise_exclusive" });
    let patch = Call::new("PATCH", format!("/api/tasks/{id}")).json(&change);

    server
        .send(with(patch, &free))
        .await
        .problem(422, "invalid_field");
    let bulk = Call::post("/api/tasks/bulk/reschedule?status=QUEUED", &change);

    server
        .send(with(bulk, &free))
        .await
        .problem(422, "invalid_field");
}

async fn an_offset_beyond_the_end_starts_the_stream_again(store: Backend) {
    let server = Server::start(store).await;
    let id = server
        .submit(
            "sample.stream",
            json!({ "chunks": 3, "chunkMs": 1 }),
            json!({}),
        )
        .await;

    server.until_ended(&id).await;
    let call =
        Call::get(format!("/api/tasks/{id}/stream")).header("Last-Event-ID", &u64::MAX.to_string());
    let mut events = call.follow(server.address).await;
    let mut names = Vec::new();

    while let Some(event) = events.next().await {
        names.push(event.name);
    }

    assert_eq!(names, ["reset", "chunk", "chunk", "chunk", "end"]);
}

async fn changes_of_another_process_are_shown_without_an_event(store: Backend) {
    let server = Server::start(store).await;
    // A node of another process, so that streams poll the store.
    server.register_node_of_another_process().await;

    let id = server.submit_for_later("default").await;
    let mut events = Call::get("/api/events").follow(server.address).await;
    assert_eq!(events.next().await.unwrap().name, "state");
    let mut socket = connect(&server, &[]).await.unwrap();
    socket
        .send(&json!({ "action": "subscribe", "all": true }))
        .await;
    socket.until(|message| message["type"] == "states").await;

    // These changes go to the store only: no event is published.
    let store = server.store_of_another_process().await;
    let task = |name: &str| {
        NewTask::new(
            name,
            "sample.echo",
            queue_name("elsewhere"),
            Json::parse("parameters", "1").unwrap(),
        )
    };

    let made = store.submit_task(task("default")).await.unwrap().task_id;
    store.submit_task(task("another-user")).await.unwrap();
    store
        .cancel_task(&Access::All, TaskId(id.parse().unwrap()))
        .await
        .unwrap();
    let mut changes = Vec::new();

    let receive_both = async {
        while changes.len() < 2 {
            let event = events.next().await.unwrap();
            changes.push((
                event.name,
                event.data["taskId"].as_str().unwrap().to_owned(),
            ));
        }
    };

    tokio::time::timeout(DEADLINE, receive_both)
        .await
        .expect("both in time");
    changes.sort();
    assert_eq!(
        changes,
        [
            ("cancelled".to_owned(), id.clone()),
            ("submitted".to_owned(), made.to_string())
        ]
    );

    let received = socket
        .until(|message| message["event"] == "cancelled")
        .await;
    assert!(
        received
            .iter()
            .all(|message| message["userId"] == "default"),
        "{received:?}"
    );
}

async fn shutdown_does_not_wait_for_clients_that_do_not_read(store: Backend) {
    let settings = ListenerSettings {
        drain: Duration::from_millis(200),
        ..ListenerSettings::default()
    };
    let server = Server::start_with(store, IdentityMode::Dev, settings).await;

    for _ in 0..200 {
        let body = json!({ "taskType": "sample.echo", "taskKey": "k".repeat(190), "delay": "1d" });
        server.post("/api/tasks", &body).await.expect(202);
    }

    let mut stalled = connect(&server, &[]).await.unwrap();
    // Unread answers fill the buffers; then the server can no longer write and stops reading.
    let ask = format!(
        "{}{}",
        json!({ "action": "subscribe", "all": true }),
        " ".repeat(60_000)
    );
    let is_taken = async |socket: &mut Socket| {
        let sent = socket.0.send(Message::text(ask.clone()));
        tokio::time::timeout(Duration::from_secs(1), sent)
            .await
            .is_ok()
    };
    while is_taken(&mut stalled).await {}

    server.closing.cancel();
    // The socket alone would have ten seconds to read.
    tokio::time::timeout(Duration::from_secs(9), server.serving)
        .await
        .expect("an end in time")
        .unwrap();
}
