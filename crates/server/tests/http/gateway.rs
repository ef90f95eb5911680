//! The mode `trusted-header`: only the gateway is trusted, and no page in a browser beside it.

use libtest_mimic::Trial;
use longhaul::server::{Gateway, IdentityMode, ListenerSettings, Network};

use crate::database::Backend;
use crate::trial::once;
use crate::{client::Call, server::Server};

pub(crate) fn trials() -> Vec<Trial> {
    once![
        a_page_that_rebinds_its_name_gets_nothing,
        a_caller_without_the_secret_of_the_gateway_gets_nothing
    ]
}

const SECRET: &str = "a secret of the gateway";

async fn behind(gateway: Gateway) -> Server {
    let mode = IdentityMode::TrustedHeader(gateway);
    Server::start_with(Backend::Sqlite, mode, ListenerSettings::default()).await
}

fn here() -> Gateway {
    Gateway::within(Network::LOOPBACK.to_vec())
}

/// What a page sends that has given its name the address of this server.
fn rebound(path: &str) -> Call {
    let call = Call::get(path).user("u-1");
    let call = call.header("Host", "evil.example:7080");
    call.header("Origin", "http://evil.example:7080")
}

async fn a_page_that_rebinds_its_name_gets_nothing() {
    let names = ["tasks.example".to_owned()];
    let server = behind(here().with_hosts(&names).unwrap()).await;

    for path in ["/api/tasks", "/api/types", "/api/events"] {
        let refused = server.send(rebound(path)).await;
        refused.problem(403, "unknown_host");
    }

    let called = |host: &str| Call::get("/api/tasks").user("u-1").header("Host", host);
    server.send(called("tasks.example")).await.expect(200);
    let origin = "https://tasks.example";
    let page = called("tasks.example:7080").header("Origin", origin);
    server.send(page).await.expect(200);

    // Probes come from elsewhere, by the address.
    server.get("/healthz").await.expect(200);
}

async fn a_caller_without_the_secret_of_the_gateway_gets_nothing() {
    let server = behind(here().with_secret(SECRET).unwrap()).await;
    let refused = server.send(rebound("/api/tasks")).await;
    refused.problem(403, "not_the_gateway");

    let call = |secret: &str| {
        let call = Call::get("/api/tasks").user("u-1");
        server.send(call.header("X-Gateway-Secret", secret))
    };
    call("a secret of another")
        .await
        .problem(403, "not_the_gateway");
    call(SECRET).await.expect(200);
}
