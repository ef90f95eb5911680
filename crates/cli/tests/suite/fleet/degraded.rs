//! A fleet without its broker keeps working, and reports that it is degraded.

use libtest_mimic::Trial;
use longhaul_testkit::fault_proxy::{Fault, FaultProxy};
use serde_json::json;

use super::{Fleet, server, until};
use crate::program::process::Process;
use crate::trial::once;

pub(crate) fn trials() -> Vec<Trial> {
    once![
        a_fleet_without_its_broker_is_degraded_and_works,
        a_node_that_starts_without_its_servers_works
    ]
}

async fn a_fleet_without_its_broker_is_degraded_and_works() {
    let url = server("LONGHAUL_TEST_RABBITMQ");
    let (credentials, address) = url.rsplit_once('@').expect("credentials and an address");
    let (host, rest) = address.split_once('/').unwrap_or((address, ""));
    let broker = tokio::net::lookup_host(host).await.unwrap().next();
    let proxy = FaultProxy::before(broker.unwrap(), 0).await.unwrap();
    let fleet = Fleet::behind(&format!("{credentials}@{}/{rest}", proxy.address())).await;
    let token = fleet.database.token("u-1").await;
    let (api, _worker, _maintenance) =
        tokio::join!(fleet.api(), fleet.worker(), fleet.maintenance());
    let id = api.submit(&token, "sample.echo", json!(1)).await;
    api.until(&token, &id, "COMPLETED").await;
    until("ready", async || {
        api.ready().await == json!({ "status": "ok" })
    })
    .await;

    proxy.set(Fault::Cut);
    until("degraded", async || {
        api.ready().await == json!({ "status": "degraded", "missing": ["broker"] })
    })
    .await;
    for n in 0..3 {
        let id = api.submit(&token, "sample.echo", json!(n)).await;
        api.until(&token, &id, "COMPLETED").await;
    }

    proxy.heal();
    until("ready again", async || {
        api.ready().await == json!({ "status": "ok" })
    })
    .await;
    let id = api.submit(&token, "sample.echo", json!(2)).await;
    api.until(&token, &id, "COMPLETED").await;
}

async fn a_node_that_starts_without_its_servers_works() {
    let fleet = Fleet::make().await;
    let token = fleet.database.token("u-1").await;
    let mut alone = fleet.program(&["serve", "--samples"]);
    alone
        .env("LONGHAUL_BROKER", "amqp://guest:s3cret@127.0.0.1:1")
        .env("LONGHAUL_REDIS", "redis://:s3cret@127.0.0.1:1");

    let node = Process::start(alone).await;
    assert_eq!(
        node.ready().await,
        json!({ "status": "degraded", "missing": ["broker", "redis"] })
    );
    let id = node.submit(&token, "sample.echo", json!(1)).await;

    node.until(&token, &id, "COMPLETED").await;
    node.stop().await;
}
