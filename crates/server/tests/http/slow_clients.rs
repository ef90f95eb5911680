//! Thousands of clients that never finish their request: they time out, and other clients are
//! served.
//!
//! `bench/live` measures the cost. The case is independent of the store, so it runs on one.

use std::time::Duration;

use futures::future::join_all;
use libtest_mimic::Trial;
use longhaul::server::{IdentityMode, ListenerSettings};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::database::Backend;
use crate::trial::once;
use crate::{
    client::{Call, DEADLINE},
    server::Server,
};

pub(crate) fn trials() -> Vec<Trial> {
    once![two_thousand_slow_heads_time_out_and_do_not_block_other_clients]
}

const SLOW: usize = 2_000;
/// Both ends of each connection are in this process, and the other cases need files as well.
const FILES: u64 = 3 * SLOW as u64 + 2_000;

/// Raises the limit on open files and sockets.
fn allow_files() {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum;
    assert!(
        hard.is_none_or(|hard| hard >= FILES),
        "this needs {FILES} open files: raise the hard limit, ulimit -Hn"
    );

    if limit.current.is_some_and(|soft| soft < FILES) {
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(FILES),
                maximum: hard,
            },
        )
        .unwrap();
    }
}

/// Starts a request that never ends. Every other client sends nothing; the rest send a byte now and
/// then.
async fn slow(server: &Server, n: usize) -> TcpStream {
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    if n % 2 == 1 {
        socket
            .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
            .await
            .unwrap();
    }

    socket
}

/// Sends bytes slowly until the server closes the connection.
async fn closed(mut socket: TcpStream) {
    let mut answer = [0; 512];
    loop {
        let read = tokio::time::timeout(Duration::from_millis(200), socket.read(&mut answer)).await;
        match read {
            Ok(Ok(0) | Err(_)) => return,
            Ok(Ok(_)) => {}
            // The connection is open: send another byte.
            Err(_) => drop(socket.write_all(b"x").await),
        }
    }
}

async fn two_thousand_slow_heads_time_out_and_do_not_block_other_clients() {
    allow_files();
    let settings = ListenerSettings {
        header_timeout: Duration::from_secs(2),
        connections: 2 * SLOW,
        connections_per_address: 2 * SLOW,
        ..ListenerSettings::default()
    };

    let server = Server::start_with(Backend::Sqlite, IdentityMode::Dev, settings).await;
    let (over, mut is_over) = watch::channel(false);
    let attack = async {
        let mut sockets = Vec::with_capacity(SLOW);
        for n in 0..SLOW {
            sockets.push(slow(&server, n).await);
        }

        tokio::time::timeout(DEADLINE, join_all(sockets.into_iter().map(closed)))
            .await
            .expect("all are closed in time");
        over.send(true).unwrap();
    };

    let good = async {
        let mut answered = 0;
        while !*is_over.borrow_and_update() {
            let id = server
                .submit("sample.echo", json!(answered), json!({}))
                .await;
            assert_eq!(server.task(&id).await["parameters"], answered);
            answered += 1;
        }

        answered
    };

    let ((), answered) = tokio::join!(attack, good);
    assert!(answered > 0);
    assert_eq!(Call::get("/healthz").send(server.address).await.status, 200);
}
