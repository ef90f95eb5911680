//! Unknown tokens: they cost the store next to nothing and lock out no other caller.

use std::time::Duration;

use futures::future::join_all;
use libtest_mimic::Trial;

use crate::database::Backend;
use crate::trial::on_every_store;
use crate::{
    client::{Call, DEADLINE},
    server::Server,
    tokens::{mint, with},
};

pub(crate) fn trials() -> Vec<Trial> {
    on_every_store![
        wrong_tokens_lock_no_other_caller_out,
        a_token_that_another_process_made_works_at_once,
        unknown_tokens_are_looked_up_together,
        a_token_is_revoked_in_time_while_others_at_its_address_guess
    ]
}

const HOUR: u64 = 3_600_000;
/// More than any limit on unknown tokens that this server had.
const GUESSES: u64 = 150;

fn list() -> Call {
    Call::get("/api/tasks?size=1")
}

/// Presents that many unknown tokens at once.
async fn guess(server: &Server, seed: u64) {
    let guesses = (0..GUESSES).map(|n| server.send(with(list(), &mint(seed + n))));
    for reply in join_all(guesses).await {
        reply.problem(401, "token_unknown");
    }
}

async fn wrong_tokens_lock_no_other_caller_out(store: Backend) {
    let server = Server::with_tokens(store).await;
    let mut good = Vec::new();
    for seed in 100..140 {
        good.push(server.token(seed, "u-1", &["tasks:read"], None, HOUR).await);
    }

    guess(&server, 10_000).await;

    for token in &good {
        server.send(with(list(), token)).await.expect(200);
    }
}

async fn a_token_that_another_process_made_works_at_once(store: Backend) {
    let server = Server::with_tokens(store).await;
    guess(&server, 20_000).await;

    // The store gets them, and this process is not told.
    for seed in 140..143 {
        let made = server.token(seed, "u-1", &["tasks:read"], None, HOUR).await;
        server.send(with(list(), &made)).await.expect(200);
    }
}

async fn unknown_tokens_are_looked_up_together(store: Backend) {
    let server = Server::with_tokens(store).await;
    let operator = server.token(150, "u-1", &["operate"], None, HOUR).await;
    guess(&server, 30_000).await;
    guess(&server, 40_000).await;

    let metrics = server.send(with(Call::get("/metrics"), &operator)).await;
    let reads = |operation: &str| -> u64 {
        let series = format!("tasks_store_seconds_count{{operation=\"{operation}\"}} ");
        let line = metrics
            .text
            .lines()
            .find_map(|line| line.strip_prefix(&series));
        line.map_or(0, |count| count.parse().unwrap())
    };

    // One of them is the operator's.
    assert_eq!(reads("find_token"), 1, "{}", metrics.text);
    assert!((1..20).contains(&reads("list_tokens")), "{}", metrics.text);
}

async fn a_token_is_revoked_in_time_while_others_at_its_address_guess(store: Backend) {
    let server = Server::with_tokens(store).await;
    let good = server.token(160, "u-1", &["tasks:read"], None, HOUR).await;
    server.send(with(list(), &good)).await.expect(200);
    guess(&server, 50_000).await;
    server
        .longhaul
        .engine()
        .tokens()
        .revoke_token(good.id())
        .await
        .unwrap();

    // Only requests are used here: a live stream would renew the cache for them.
    let refused = async {
        loop {
            let reply = server.send(with(list(), &good)).await;
            if reply.status != 200 {
                return reply;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };

    let reply = tokio::time::timeout(DEADLINE, refused)
        .await
        .expect("the store is asked again in time");
    reply.problem(401, "token_revoked");
}
