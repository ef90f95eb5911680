//! Concurrent clients with one idempotency key: the first request decides, and the others get its
//! answer.

use futures::future::join_all;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::database::Backend;
use crate::trial::on_every_store;
use crate::{
    client::{Call, Reply},
    server::Server,
};

pub(crate) fn trials() -> Vec<Trial> {
    on_every_store![
        concurrent_submits_with_one_key_and_one_body_create_one_task,
        concurrent_submits_with_one_key_and_two_bodies_create_one_task_and_refuse_the_other_body,
        concurrent_batches_with_one_key_are_created_once,
        the_same_key_of_two_owners_creates_two_tasks
    ]
}

const CLIENTS: usize = 32;
const KEYS: usize = 8;

fn body(parameters: &Value) -> Value {
    json!({ "taskType": "sample.echo", "parameters": parameters, "delay": "1d" })
}

/// Sends all requests at once, each over its own connection.
async fn race(server: &Server, calls: Vec<Call>) -> Vec<Reply> {
    let address = server.address;
    let sent = calls
        .into_iter()
        .map(|call| tokio::spawn(async move { call.send(address).await }));

    join_all(sent)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect()
}

async fn tasks_of(server: &Server, user: &str) -> Vec<Value> {
    let list = server
        .send(Call::get("/api/tasks?size=200").user(user))
        .await
        .expect(200);
    list["items"].as_array().unwrap().clone()
}

async fn concurrent_submits_with_one_key_and_one_body_create_one_task(store: Backend) {
    let server = Server::start(store).await;
    let call = |key: usize| {
        Call::post("/api/tasks", &body(&json!(key))).header("Idempotency-Key", &format!("k-{key}"))
    };
    let calls = (0..CLIENTS * KEYS).map(|n| call(n % KEYS)).collect();
    let mut answers: Vec<Vec<Value>> = vec![Vec::new(); KEYS];

    for (n, reply) in race(&server, calls).await.into_iter().enumerate() {
        answers[n % KEYS].push(reply.expect(202));
    }

    for same in &answers {
        assert!(same.iter().all(|answer| *answer == same[0]), "{same:?}");
    }

    assert_eq!(tasks_of(&server, "default").await.len(), KEYS);
}

async fn concurrent_submits_with_one_key_and_two_bodies_create_one_task_and_refuse_the_other_body(
    store: Backend,
) {
    let server = Server::start(store).await;
    for key in 0..KEYS {
        let call = |n: usize| {
            Call::post("/api/tasks", &body(&json!(n % 2)))
                .header("Idempotency-Key", &key.to_string())
        };
        let replies = race(&server, (0..CLIENTS).map(call).collect()).await;
        let winner = replies
            .iter()
            .position(|reply| reply.status == 202)
            .expect("one request is first")
            % 2;

        let answer = replies[winner].clone().expect(202);
        for (n, reply) in replies.into_iter().enumerate() {
            if n % 2 == winner {
                assert_eq!(reply.expect(202), answer);
            } else {
                reply.problem(422, "idempotency_key_reused");
            }
        }

        assert_eq!(
            server.task(answer["taskId"].as_str().unwrap()).await["parameters"],
            winner
        );
    }

    assert_eq!(tasks_of(&server, "default").await.len(), KEYS);
}

async fn concurrent_batches_with_one_key_are_created_once(store: Backend) {
    let server = Server::start(store).await;
    let tasks: Vec<Value> = (0..20).map(|n| body(&json!(n))).collect();
    let call = Call::post("/api/tasks/batch", &json!({ "tasks": tasks }))
        .header("Idempotency-Key", "many");
    let replies = race(&server, vec![call; CLIENTS]).await;

    let answers: Vec<Value> = replies.into_iter().map(|reply| reply.expect(202)).collect();
    assert!(
        answers.iter().all(|answer| *answer == answers[0]),
        "{answers:?}"
    );
    assert_eq!(tasks_of(&server, "default").await.len(), tasks.len());
}

async fn the_same_key_of_two_owners_creates_two_tasks(store: Backend) {
    let server = Server::start(store).await;
    let call = |n: usize| {
        let user = if n.is_multiple_of(2) { "u-1" } else { "u-2" };
        Call::post("/api/tasks", &body(&json!(1)))
            .user(user)
            .header("Idempotency-Key", "same")
    };
    for reply in race(&server, (0..CLIENTS).map(call).collect()).await {
        reply.expect(202);
    }

    let one = tasks_of(&server, "u-1").await;
    let two = tasks_of(&server, "u-2").await;
    assert_eq!((one.len(), two.len()), (1, 1));
    assert_ne!(one[0]["taskId"], two[0]["taskId"]);
}
