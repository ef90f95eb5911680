//! The WebSocket: subscriptions, limits, and the same access checks as every route.

use futures::{SinkExt as _, StreamExt as _};
use libtest_mimic::Trial;
use longhaul::{EventKind, server::ListenerSettings};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Error, Message, client::IntoClientRequest as _, protocol::CloseFrame},
};

use crate::database::Backend;
use crate::trial::on_every_store;
use crate::{
    client::{Call, DEADLINE},
    server::Server,
};

pub(crate) fn trials() -> Vec<Trial> {
    on_every_store![
        a_socket_follows_a_task_from_its_current_state_until_it_unsubscribes,
        a_subscription_to_all_covers_only_the_callers_tasks,
        an_invalid_message_is_refused_and_the_socket_stays_open,
        the_number_of_subscriptions_is_limited,
        a_page_of_another_site_and_an_unknown_caller_get_no_socket,
        a_slow_client_is_closed_with_a_reason_and_does_not_block_others,
        shutdown_closes_sockets_and_an_open_socket_uses_a_connection_slot
    ]
}

pub(crate) struct Socket(pub(crate) WebSocketStream<MaybeTlsStream<TcpStream>>);

pub(crate) async fn connect(
    server: &Server,
    headers: &[(&'static str, &str)],
) -> Result<Socket, Error> {
    let mut request = format!("ws://{}/api/ws", server.address)
        .into_client_request()
        .unwrap();
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }

    connect_async(request)
        .await
        .map(|(socket, _)| Socket(socket))
}

async fn connected(server: &Server, user: &str) -> Socket {
    connect(server, &[("x-user-id", user)]).await.unwrap()
}

impl Socket {
    pub(crate) async fn send(&mut self, message: &Value) {
        self.0
            .send(Message::text(message.to_string()))
            .await
            .unwrap();
    }

    pub(crate) async fn frame(&mut self) -> Message {
        tokio::time::timeout(DEADLINE, self.0.next())
            .await
            .expect("a message in time")
            .expect("one more")
            .unwrap()
    }

    /// The next message in JSON.
    pub(crate) async fn receive(&mut self) -> Value {
        loop {
            let frame = self.frame().await;
            if let Message::Text(text) = &frame {
                return serde_json::from_str(text).unwrap();
            }
            assert!(frame.is_ping() || frame.is_pong(), "{frame:?}");
        }
    }

    pub(crate) async fn until(&mut self, is_wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut received = Vec::new();
        loop {
            received.push(self.receive().await);
            if is_wanted(received.last().unwrap()) {
                return received;
            }
        }
    }

    /// How the server closes it.
    pub(crate) async fn closed(&mut self) -> CloseFrame {
        loop {
            if let Message::Close(frame) = self.frame().await {
                return frame.expect("a code and a reason");
            }
        }
    }
}

fn subscribe(id: &str) -> Value {
    json!({ "action": "subscribe", "taskId": id })
}

#[expect(clippy::too_many_lines, reason = "one scenario in its order")]
async fn a_socket_follows_a_task_from_its_current_state_until_it_unsubscribes(store: Backend) {
    let server = Server::start(store).await;
    server
        .send(Call::new("POST", "/api/queues/free_default/pause"))
        .await
        .expect(204);
    let id = server
        .submit(
            "sample.progress",
            json!({ "steps": 20, "stepMs": 2 }),
            json!({}),
        )
        .await;

    let mut socket = connect(&server, &[]).await.unwrap();
    socket.send(&subscribe(&id)).await;
    assert_eq!(
        socket.receive().await,
        json!({ "type": "subscribed", "taskId": id, "all": false })
    );

    let state = socket.receive().await;
    assert_eq!(
        (&state["type"], &state["task"]["taskId"]),
        (&json!("state"), &json!(id))
    );
    assert_eq!(
        (&state["task"]["status"], &state["task"]["version"]),
        (&json!("QUEUED"), &json!(1))
    );
    server
        .send(Call::new("POST", "/api/queues/free_default/resume"))
        .await
        .expect(204);

    let received = socket
        .until(|message| message["event"] == "completed")
        .await;
    assert!(
        received
            .iter()
            .all(|message| message["type"] == "event" && message["taskId"] == json!(id)),
        "{received:?}"
    );

    let versions: Vec<u64> = received
        .iter()
        .map(|message| message["version"].as_u64().unwrap())
        .collect();
    assert!(versions.is_sorted(), "{versions:?}");
    assert_eq!(
        received.last().unwrap()["version"],
        server.task(&id).await["version"]
    );

    let other = server.submit_for_later("default").await;
    socket.send(&subscribe(&other)).await;
    socket.until(|message| message["type"] == "state").await;
    socket
        .send(&json!({ "action": "unsubscribe", "taskId": other }))
        .await;
    assert_eq!(
        socket.receive().await,
        json!({ "type": "unsubscribed", "taskId": other, "all": false })
    );

    server
        .send(Call::new("DELETE", format!("/api/tasks/{other}")))
        .await
        .expect(204);

    // No event came: the next message is the answer to the next request.
    socket
        .send(&json!({ "action": "unsubscribe", "all": true }))
        .await;
    assert_eq!(
        socket.receive().await,
        json!({ "type": "unsubscribed", "all": true })
    );
}

async fn a_subscription_to_all_covers_only_the_callers_tasks(store: Backend) {
    let server = Server::behind_a_gateway(store).await;
    let foreign = server.submit_for_later("u-2").await;
    let own = server.submit_for_later("u-1").await;
    let mut socket = connected(&server, "u-1").await;
    socket.send(&subscribe(&foreign)).await;

    let refused = socket.receive().await;
    assert_eq!(
        (&refused["type"], &refused["code"]),
        (&json!("error"), &json!("task_not_found"))
    );
    let missing = "01900000-0000-7000-8000-000000000000";

    socket.send(&subscribe(missing)).await;
    assert_eq!(
        socket.receive().await,
        refused,
        "a task of another user looks like a missing one"
    );
    socket
        .send(&json!({ "action": "subscribe", "all": true }))
        .await;

    assert_eq!(
        socket.receive().await,
        json!({ "type": "subscribed", "all": true })
    );

    let states = socket.receive().await;
    assert_eq!(
        (&states["type"], &states["items"][0]["taskId"]),
        (&json!("states"), &json!(own))
    );
    assert_eq!(states["items"].as_array().unwrap().len(), 1);
    server
        .send(Call::new("DELETE", format!("/api/tasks/{foreign}")).user("u-2"))
        .await
        .expect(204);

    server
        .send(Call::new("DELETE", format!("/api/tasks/{own}")).user("u-1"))
        .await
        .expect(204);

    let received = socket.receive().await;
    assert_eq!(
        (&received["event"], &received["taskId"]),
        (&json!("cancelled"), &json!(own))
    );
}

async fn an_invalid_message_is_refused_and_the_socket_stays_open(store: Backend) {
    let server = Server::start(store).await;
    let id = server.submit_for_later("default").await;
    let mut socket = connect(&server, &[]).await.unwrap();

    for wrong in [
        json!("hello"),
        json!({}),
        json!({ "action": "dance", "all": true }),
        json!({ "action": "subscribe" }),
        json!({ "action": "subscribe", "taskId": "7" }),
        json!({ "action": "subscribe", "taskId": id, "all": true }),
        json!({ "action": "subscribe", "taskID": id }),
        json!({ "action": "unsubscribe", "all": false }),
    ] {
        socket.send(&wrong).await;
        let answer = socket.receive().await;
        assert_eq!(
            (&answer["type"], &answer["code"]),
            (&json!("error"), &json!("invalid_message")),
            "{wrong}"
        );
        assert!(
            answer["detail"]
                .as_str()
                .is_some_and(|detail| !detail.is_empty())
        );
    }

    socket.0.send(Message::text("{not json")).await.unwrap();
    assert_eq!(socket.receive().await["code"], "invalid_message");
    socket.send(&subscribe(&id)).await;
    assert_eq!(socket.receive().await["type"], "subscribed");
    socket
        .0
        .send(Message::text("x".repeat(64 * 1024 + 1)))
        .await
        .unwrap();

    assert_eq!(u16::from(socket.closed().await.code), 1009);
    let mut socket = connect(&server, &[]).await.unwrap();
    socket.0.send(Message::binary(vec![1, 2, 3])).await.unwrap();
    assert_eq!(u16::from(socket.closed().await.code), 1003);
}

async fn the_number_of_subscriptions_is_limited(store: Backend) {
    let server = Server::start(store).await;
    let mut socket = connect(&server, &[]).await.unwrap();
    for _ in 0..100 {
        let id = server.submit_for_later("default").await;
        socket.send(&subscribe(&id)).await;
        socket.until(|message| message["type"] == "state").await;
    }

    let id = server.submit_for_later("default").await;
    socket.send(&subscribe(&id)).await;
    assert_eq!(socket.receive().await["code"], "too_many_subscriptions");
}

async fn a_page_of_another_site_and_an_unknown_caller_get_no_socket(store: Backend) {
    let server = Server::behind_a_gateway(store).await;
    let refused = async |headers: &[(&'static str, &str)]| {
        let error = connect(&server, headers).await.err().unwrap();
        let Error::Http(response) = error else {
            panic!("{error}")
        };
        let problem: Value = serde_json::from_slice(response.body().as_ref().unwrap()).unwrap();

        (
            response.status().as_u16(),
            problem["code"].as_str().unwrap().to_owned(),
        )
    };
    assert_eq!(refused(&[]).await, (401, "unauthenticated".to_owned()));
    let foreign = [("x-user-id", "u-1"), ("origin", "https://evil.example")];
    assert_eq!(refused(&foreign).await, (403, "cross_site".to_owned()));
    let unscoped = [("x-user-id", "u-1"), ("x-user-scopes", "tasks:write")];
    assert_eq!(refused(&unscoped).await, (403, "forbidden".to_owned()));

    let same = format!("http://{}", server.address);
    assert!(
        connect(&server, &[("x-user-id", "u-1"), ("origin", &same)])
            .await
            .is_ok()
    );
    server
        .send(Call::get("/api/ws").user("u-1"))
        .await
        .problem(400, "not_websocket");
}

async fn a_slow_client_is_closed_with_a_reason_and_does_not_block_others(store: Backend) {
    let server = Server::start(store).await;
    let id = server.submit_for_later("default").await;
    let mut slow = connect(&server, &[]).await.unwrap();
    let mut good = connect(&server, &[]).await.unwrap();
    for socket in [&mut slow, &mut good] {
        socket.send(&subscribe(&id)).await;
        socket.until(|message| message["type"] == "state").await;
    }

    good.send(&json!({ "action": "unsubscribe", "taskId": id }))
        .await;
    good.receive().await;
    drop(good);

    // More events than the bus buffers. One thread publishes them all, so that no subscriber can
    // read in between.
    let task = server.until(&id, |_| true).await;
    for _ in 0..200_000 {
        server
            .longhaul
            .engine()
            .publish_event(&task, EventKind::Rescheduled);
    }

    let mut good = connect(&server, &[]).await.unwrap();
    good.send(&subscribe(&id)).await;
    good.until(|message| message["type"] == "state").await;
    let closed = slow.closed().await;
    assert_eq!(u16::from(closed.code), 1013);
    assert!(closed.reason.contains("too slow"), "{closed:?}");
}

async fn shutdown_closes_sockets_and_an_open_socket_uses_a_connection_slot(store: Backend) {
    let settings = ListenerSettings {
        connections: 1,
        ..ListenerSettings::default()
    };
    let server = Server::start_with(store, longhaul::server::IdentityMode::Dev, settings).await;
    let mut socket = connect(&server, &[]).await.unwrap();

    socket
        .send(&json!({ "action": "subscribe", "all": true }))
        .await;
    socket.until(|message| message["type"] == "states").await;
    assert!(
        connect(&server, &[]).await.is_err(),
        "the only connection slot is taken"
    );
    server.closing.cancel();

    assert_eq!(u16::from(socket.closed().await.code), 1001);
    tokio::time::timeout(DEADLINE, server.serving)
        .await
        .expect("an end in time")
        .unwrap();
}
