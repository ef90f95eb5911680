//! Whether a load balancer should send anything here.

use std::sync::Arc;
use std::time::Duration;

use longhaul::{
    Longhaul,
    server::{CancellationToken, IdentityMode, ListenerSettings},
};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::{
    client::{Call, DEADLINE},
    server::{Server, setting},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_drains_is_alive_but_not_ready() {
    let server = Server::start().await;
    assert_eq!(server.get("/readyz").await.status, 200);
    server.longhaul.begin_drain();
    server.get("/readyz").await.problem(503, "draining");
    assert_eq!(server.get("/healthz").await.status, 200);
}

/// A way to the database that can be cut.
async fn door(to: String) -> (u16, watch::Sender<bool>) {
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

#[tokio::test(flavor = "multi_thread")]
async fn a_process_whose_store_is_away_is_not_ready_until_it_is_back() {
    let url = setting("LONGHAUL_TEST_POSTGRES").expect("LONGHAUL_TEST_POSTGRES: run the tests with make test");
    let (account, place) = url.strip_prefix("postgres://").unwrap().split_once('@').unwrap();
    let (port, open) = door(place.split('/').next().unwrap().to_owned()).await;
    let name = format!("longhaul_test_ready_{}", std::process::id());
    sql(&url, &format!("CREATE DATABASE {name}")).await;
    let longhaul = Longhaul::open(&format!("postgres://{account}@127.0.0.1:{port}/{name}")).await.unwrap();
    let longhaul = Arc::new(longhaul.without_worker().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, closing) = (listener.local_addr().unwrap(), CancellationToken::new());
    let serving = longhaul.serve(listener, IdentityMode::Dev, ListenerSettings::default(), closing.clone());
    let serving = tokio::spawn(serving);
    let until = async |wanted: u16| {
        let so = async {
            while Call::get("/readyz").send(address).await.status != wanted {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(DEADLINE, so).await.unwrap_or_else(|_| panic!("no {wanted} in time"));
    };
    until(200).await;
    open.send(false).unwrap();
    until(503).await;
    let metrics = Call::get("/metrics").send(address).await;
    assert!(metrics.status == 200 && metrics.text.contains("tasks_store_up 0\n"), "{}", metrics.text);
    open.send(true).unwrap();
    until(200).await;
    closing.cancel();
    serving.await.unwrap().unwrap();
    Arc::into_inner(longhaul).unwrap().stop().await;
    sql(&url, &format!("DROP DATABASE {name} WITH (FORCE)")).await;
}

async fn sql(url: &str, statement: &str) {
    use sqlx::{Connection as _, Executor as _};
    let mut connection = sqlx::PgConnection::connect(url).await.unwrap();
    connection.execute(sqlx::AssertSqlSafe(statement.to_owned())).await.unwrap();
}
