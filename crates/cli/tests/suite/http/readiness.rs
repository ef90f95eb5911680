//! Whether a load balancer should send anything here.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use libtest_mimic::Trial;
use longhaul::{
    Longhaul,
    server::{CancellationToken, IdentityMode, ListenerSettings},
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::database::{Backend, Database};
use crate::http::{
    client::{Call, DEADLINE, Reply},
    server::Server,
};
use crate::trial::{on, on_every_store};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = on_every_store![a_node_that_drains_is_alive_but_not_ready];
    // A file is never away.
    for store in [Backend::Postgres, Backend::MySql] {
        let name = concat!(
            module_path!(),
            "::a_process_whose_store_is_away_is_not_ready_until_it_is_back"
        );
        trials.push(on(store, name, move || {
            a_process_whose_store_is_away_is_not_ready_until_it_is_back(store)
        }));
    }
    trials
}

/// The answer to a load balancer, once it is this one. As a load balancer does: nobody tells of readiness, it is asked for.
pub(crate) async fn readiness(address: SocketAddr, wanted: u16) -> Reply {
    let so = async {
        loop {
            let reply = Call::get("/readyz").send(address).await;
            if reply.status == wanted {
                return reply;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(DEADLINE, so)
        .await
        .unwrap_or_else(|_| panic!("no {wanted} in time"))
}

async fn a_node_that_drains_is_alive_but_not_ready(store: Backend) {
    let server = Server::start(store).await;
    readiness(server.address, 200).await;
    server.longhaul.begin_drain();
    server.get("/readyz").await.problem(503, "draining");
    assert_eq!(server.get("/healthz").await.status, 200);
}

/// A way to the database that can be cut.
pub(crate) async fn door(to: String) -> (u16, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, (open, is_open)) = (listener.local_addr().unwrap().port(), watch::channel(true));
    tokio::spawn(async move {
        loop {
            let (mut here, _) = listener.accept().await.unwrap();
            let (to, mut is_open) = (to.clone(), is_open.clone());
            tokio::spawn(async move {
                if !*is_open.borrow() {
                    return;
                }
                let mut there = TcpStream::connect(to).await.unwrap();
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut here, &mut there) => {}
                    _ = is_open.wait_for(|open| !open) => {}
                }
            });
        }
    });
    (port, open)
}

async fn a_process_whose_store_is_away_is_not_ready_until_it_is_back(store: Backend) {
    let database = Database::make(store).await;
    let (account, place) = database.url.split_once('@').unwrap();
    let (server, name) = place.split_once('/').unwrap();
    let (port, open) = door(server.to_owned()).await;
    let longhaul = Longhaul::open(&format!("{account}@127.0.0.1:{port}/{name}"))
        .await
        .unwrap();
    let longhaul = Arc::new(longhaul.without_worker().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, closing) = (listener.local_addr().unwrap(), CancellationToken::new());
    let serving = longhaul.serve(
        listener,
        IdentityMode::Dev,
        ListenerSettings::default(),
        closing.clone(),
    );
    let serving = tokio::spawn(serving);
    readiness(address, 200).await;
    open.send(false).unwrap();
    readiness(address, 503).await;
    let metrics = Call::get("/metrics").send(address).await;
    assert!(
        metrics.status == 200 && metrics.text.contains("tasks_store_up 0\n"),
        "{}",
        metrics.text
    );
    open.send(true).unwrap();
    readiness(address, 200).await;
    closing.cancel();
    serving.await.unwrap().unwrap();
    Arc::into_inner(longhaul).unwrap().stop().await;
}
