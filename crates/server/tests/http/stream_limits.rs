//! Limits of live streams: no caller takes the connections of the others.

use libtest_mimic::Trial;

use crate::database::Backend;
use crate::trial::once;
use crate::{
    client::{Call, DEADLINE},
    server::Server,
    socket::connect,
    tokens::with,
};

pub(crate) fn trials() -> Vec<Trial> {
    once![
        live_streams_of_one_owner_are_limited,
        a_token_for_all_owners_has_a_limit_of_its_own,
        a_web_socket_counts_as_a_live_stream
    ]
}

const HOUR: u64 = 3_600_000;
/// Live streams of one owner, by default.
const PER_OWNER: usize = 200;

async fn live_streams_of_one_owner_are_limited() {
    let server = Server::with_tokens(Backend::Sqlite).await;
    let one = server.token(200, "u-1", &["tasks:read"], None, HOUR).await;
    let again = server.token(201, "u-1", &["tasks:read"], None, HOUR).await;
    let other = server.token(202, "u-2", &["tasks:read"], None, HOUR).await;
    let events = || Call::get("/api/events");
    let mut open = Vec::new();
    for _ in 0..PER_OWNER {
        open.push(with(events(), &one).follow(server.address).await);
    }

    for token in [&one, &again] {
        let refused = server.send(with(events(), token)).await;
        assert_eq!(refused.headers["retry-after"], "1");
        let problem = refused.problem(429, "too_many_streams");
        assert!(
            problem["detail"].as_str().unwrap().contains("200"),
            "{problem}"
        );
    }

    // Other owners, and other requests of this one, are served.
    with(events(), &other).follow(server.address).await;
    let list = with(Call::get("/api/tasks?size=1"), &one);
    server.send(list).await.expect(200);

    open.pop();
    let reopened =
        async { while server.send(with(Call::get("/api/ws"), &again)).await.status == 429 {} };
    tokio::time::timeout(DEADLINE, reopened)
        .await
        .expect("a closed stream makes room");
}

async fn a_token_for_all_owners_has_a_limit_of_its_own() {
    let server = Server::with_tokens(Backend::Sqlite).await;
    let admin = server.token(203, "u-1", &["admin"], None, HOUR).await;
    let events = || with(Call::get("/api/events"), &admin);
    let mut open = Vec::new();
    for _ in 0..PER_OWNER + 1 {
        open.push(events().follow(server.address).await);
    }
}

async fn a_web_socket_counts_as_a_live_stream() {
    let server = Server::start(Backend::Sqlite).await;
    let mut open = Vec::new();
    for _ in 0..PER_OWNER {
        open.push(connect(&server, &[]).await.unwrap());
    }

    let refused = server.get("/api/events").await;
    refused.problem(429, "too_many_streams");
    drop(open);
}
