//! What holds for as long as a connection does: whose it is, whether their token is still good, and that it ends.

use std::time::Duration;

use futures::SinkExt as _;
use libtest_mimic::Trial;
use longhaul::{
    Access, Json, NewTask, TaskId,
    server::{IdentityMode, ListenerSettings},
};
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use crate::database::Backend;
use crate::http::{
    access::MISSING,
    client::{Call, DEADLINE},
    server::Server,
    socket::{Socket, connect},
    tokens::{mint, with},
};
use crate::trial::on_every_store;

pub(crate) fn trials() -> Vec<Trial> {
    on_every_store![
        a_socket_ends_when_its_token_is_revoked,
        a_token_that_was_known_is_good_whatever_others_at_its_address_guess,
        a_queue_that_is_kept_for_another_tier_is_not_to_be_had_by_naming_it,
        an_offset_that_no_stream_can_have_is_no_trouble,
        what_another_process_does_is_told_without_news_of_it,
        a_server_that_stops_does_not_wait_for_sockets_that_nobody_reads
    ]
}

const HOUR: u64 = 3_600_000;
/// As many tokens that are none as an address has free.
const FREE: u64 = 100;

async fn a_socket_ends_when_its_token_is_revoked(store: Backend) {
    let server = Server::with_tokens(store).await;
    let token = server.token(60, "u-1", &["tasks:read"], None, HOUR).await;
    let bearer = format!("Bearer {}", token.reveal());
    let mut socket = connect(&server, &[("authorization", &bearer)])
        .await
        .unwrap();
    socket
        .say(&json!({ "action": "subscribe", "all": true }))
        .await;
    socket.until(|message| message["type"] == "states").await;
    server
        .longhaul
        .store()
        .revoke_token(token.id())
        .await
        .unwrap();
    let closed = tokio::time::timeout(DEADLINE, socket.closed())
        .await
        .expect("an end in time");
    assert_eq!(
        (u16::from(closed.code), closed.reason.as_str()),
        (1008, "the token is no longer good")
    );
}

async fn a_token_that_was_known_is_good_whatever_others_at_its_address_guess(store: Backend) {
    let server = Server::with_tokens(store).await;
    let good = server.token(61, "u-1", &["tasks:read"], None, HOUR).await;
    let list = || with(Call::get("/api/tasks?size=1"), &good);
    server.send(list()).await.expect(200);
    for seed in 0..FREE {
        server
            .send(with(Call::get("/api/tasks"), &mint(1_000 + seed)))
            .await
            .problem(401, "token_unknown");
    }
    let guess = || with(Call::get("/api/tasks"), &mint(2_000));
    server.send(guess()).await.problem(429, "too_many_failures");
    // What the store said of the good one is forgotten meanwhile, and asked for again. Only requests show when: a live
    // stream would ask in their place, and it is a request that must be let through here.
    server
        .longhaul
        .store()
        .revoke_token(good.id())
        .await
        .unwrap();
    let asked_again = async {
        loop {
            let reply = server.send(list()).await;
            if reply.status != 200 {
                return reply;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let reply = tokio::time::timeout(DEADLINE, asked_again)
        .await
        .expect("it is asked for again in time");
    reply.problem(401, "token_revoked");
    server.send(guess()).await.problem(429, "too_many_failures");
}

async fn a_queue_that_is_kept_for_another_tier_is_not_to_be_had_by_naming_it(store: Backend) {
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

async fn an_offset_that_no_stream_can_have_is_no_trouble(store: Backend) {
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

async fn what_another_process_does_is_told_without_news_of_it(store: Backend) {
    let server = Server::start(store).await;
    // A node of another process, so that streams look for what they cannot hear.
    let mut other = server.longhaul.store().list_nodes().await.unwrap()[0].id;
    other.0 = MISSING.parse().unwrap();
    server
        .longhaul
        .store()
        .register_node(other, "other", "elsewhere", None)
        .await
        .unwrap();
    let id = server.submit_for_later("default").await;
    let mut events = Call::get("/api/events").follow(server.address).await;
    assert_eq!(events.next().await.unwrap().name, "state");
    let mut socket = connect(&server, &[]).await.unwrap();
    socket
        .say(&json!({ "action": "subscribe", "all": true }))
        .await;
    socket.until(|message| message["type"] == "states").await;
    // The store alone is told: nobody publishes anything.
    let store = server.longhaul.store();
    let task = |name: &str| {
        NewTask::new(
            name,
            "sample.echo",
            "elsewhere",
            Json::parse("parameters", "1").unwrap(),
        )
    };
    let made = store.submit_task(task("default")).await.unwrap().task_id;
    store.submit_task(task("somebody-else")).await.unwrap();
    store
        .cancel_task(&Access::All, TaskId(id.parse().unwrap()))
        .await
        .unwrap();
    let mut told = Vec::new();
    let hear_both = async {
        while told.len() < 2 {
            let event = events.next().await.unwrap();
            told.push((
                event.name,
                event.data["taskId"].as_str().unwrap().to_owned(),
            ));
        }
    };
    tokio::time::timeout(DEADLINE, hear_both)
        .await
        .expect("both in time");
    told.sort();
    assert_eq!(
        told,
        [
            ("cancelled".to_owned(), id.clone()),
            ("submitted".to_owned(), made.to_string())
        ]
    );
    let heard = socket
        .until(|message| message["event"] == "cancelled")
        .await;
    assert!(
        heard.iter().all(|message| message["userId"] == "default"),
        "{heard:?}"
    );
}

async fn a_server_that_stops_does_not_wait_for_sockets_that_nobody_reads(store: Backend) {
    let settings = ListenerSettings {
        drain: Duration::from_millis(200),
        ..ListenerSettings::default()
    };
    let server = Server::start_with(store, IdentityMode::Dev, settings).await;
    for _ in 0..200 {
        let body = json!({ "taskType": "sample.echo", "taskKey": "k".repeat(190), "delay": "1d" });
        server.post("/api/tasks", &body).await.expect(202);
    }
    let mut deaf = connect(&server, &[]).await.unwrap();
    // Answers that are never read fill whatever lies between; then the server cannot write, and no longer reads.
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
    while is_taken(&mut deaf).await {}
    server.closing.cancel();
    // The socket would be given ten seconds to read.
    tokio::time::timeout(Duration::from_secs(9), server.serving)
        .await
        .expect("an end in time")
        .unwrap();
}
