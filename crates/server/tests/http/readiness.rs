//! Readiness for load balancers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use longhaul::{
    Longhaul,
    server::{CancellationToken, IdentityMode, ListenerSettings},
};
use longhaul_testkit::fault_proxy::{Fault, FaultProxy};
use tokio::net::TcpListener;

use crate::database::{Backend, Database};
use crate::trial::{on, on_every_store};
use crate::{
    client::{Call, DEADLINE, Reply},
    server::Server,
};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = on_every_store![a_draining_node_is_alive_but_not_ready];
    // SQLite has no server that could be unavailable.
    for store in [Backend::Postgres, Backend::MySql] {
        let name = concat!(
            module_path!(),
            "::a_process_is_not_ready_while_its_store_is_unavailable"
        );
        trials.push(on(store, name, move || {
            a_process_is_not_ready_while_its_store_is_unavailable(store)
        }));
    }

    trials
}

/// Polls readiness, as a load balancer does, until it has this status.
pub(crate) async fn readiness(address: SocketAddr, wanted: u16) -> Reply {
    let polled = async {
        loop {
            let reply = Call::get("/readyz").send(address).await;
            if reply.status == wanted {
                return reply;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };

    tokio::time::timeout(DEADLINE, polled)
        .await
        .unwrap_or_else(|_| panic!("no {wanted} in time"))
}

async fn a_draining_node_is_alive_but_not_ready(store: Backend) {
    let server = Server::start(store).await;
    readiness(server.address, 200).await;
    server.longhaul.begin_drain();
    server.get("/readyz").await.problem(503, "draining");
    assert_eq!(server.get("/healthz").await.status, 200);
}

async fn a_process_is_not_ready_while_its_store_is_unavailable(store: Backend) {
    let database = Database::make(store).await;
    let (account, address) = database.url.split_once('@').unwrap();
    let (server, name) = address.split_once('/').unwrap();
    let server = tokio::net::lookup_host(server).await.unwrap().next();
    let proxy = FaultProxy::before(server.unwrap(), 0).await.unwrap();
    let longhaul = Longhaul::open(&format!("{account}@{}/{name}", proxy.address()))
        .await
        .unwrap();
    let longhaul = Arc::new(longhaul.without_worker().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();

    let address = listener.local_addr().unwrap();
    let closing = CancellationToken::new();
    let serving = longhaul.serve(
        listener,
        IdentityMode::Dev,
        ListenerSettings::default(),
        closing.clone(),
    );

    let serving = tokio::spawn(serving);
    readiness(address, 200).await;
    proxy.set(Fault::Cut);
    readiness(address, 503).await;

    let metrics = Call::get("/metrics").send(address).await;
    assert!(
        metrics.status == 200 && metrics.text.contains("tasks_store_up 0\n"),
        "{}",
        metrics.text
    );
    proxy.heal();
    readiness(address, 200).await;
    closing.cancel();
    serving.await.unwrap().unwrap();

    Arc::into_inner(longhaul).unwrap().stop().await;
}
