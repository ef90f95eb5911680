//! Request bodies: their budget, and refusals that a client can read although it writes first.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;

use libtest_mimic::Trial;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::database::Backend;
use crate::trial::once;
use crate::{
    client::{DEADLINE, Reply, read_reply},
    server::Server,
};

pub(crate) fn trials() -> Vec<Trial> {
    once![
        a_refusal_can_be_read_by_a_client_that_writes_its_whole_body_first,
        bodies_beyond_the_budget_are_refused_until_there_is_room_again
    ]
}

const MIB: usize = 1024 * 1024;

/// Writes head and body, and reads only then, as Python's urllib does.
fn write_then_read(address: SocketAddr, head: (&str, &str), bytes: usize) -> Reply {
    let mut socket = std::net::TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(DEADLINE)).unwrap();
    let (line, kind) = head;
    let head = format!(
        "{line} HTTP/1.1\r\nHost: {address}\r\nContent-Type: {kind}\r\nConnection: close\r\n\
         Content-Length: {bytes}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).unwrap();
    for _ in 0..bytes / MIB {
        socket
            .write_all(&[b' '; MIB])
            .expect("the server takes the whole body");
    }

    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    read_reply(&answer)
}

async fn a_refusal_can_be_read_by_a_client_that_writes_its_whole_body_first() {
    let open = Server::start(Backend::Sqlite).await;
    let closed = Server::with_tokens(Backend::Sqlite).await;
    let submit = ("POST /api/tasks", "application/json");

    for (server, head, status, code) in [
        (&open, submit, 413, "body_too_large"),
        (&open, ("POST /api/tasks", "text/xml"), 415, "not_json"),
        (
            &open,
            ("POST /no/such/path", "application/json"),
            404,
            "no_such_path",
        ),
        (
            &open,
            ("PATCH /api/types", "application/json"),
            405,
            "method_not_allowed",
        ),
        (&closed, submit, 401, "token_missing"),
    ] {
        let address = server.address;
        for bytes in [MIB, 8 * MIB] {
            if status == 413 && bytes == MIB {
                continue;
            }
            let written =
                tokio::task::spawn_blocking(move || write_then_read(address, head, bytes));
            written.await.unwrap().problem(status, code);
        }
    }
}

/// Announces a body of 1 MiB and sends half of it.
async fn half_a_body(address: SocketAddr) -> TcpStream {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST /api/tasks HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {MIB}\r\n\r\n"
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    socket.write_all(&vec![b' '; MIB / 2]).await.unwrap();
    socket
}

async fn bodies_beyond_the_budget_are_refused_until_there_is_room_again() {
    let server = Server::start(Backend::Sqlite).await;
    let mut sockets = Vec::new();
    for _ in 0..200 {
        sockets.push(half_a_body(server.address).await);
    }

    // The last one is beyond every budget: it is refused before its body is complete.
    let mut answer = vec![0; 1_024];
    let last = sockets.last_mut().unwrap();
    let read = tokio::time::timeout(DEADLINE, last.read(&mut answer))
        .await
        .expect("an answer before the body is complete")
        .unwrap();
    let refused = read_reply(&String::from_utf8_lossy(&answer[..read]));
    assert_eq!(refused.headers["retry-after"], "1");
    refused.problem(503, "too_many_bodies");

    drop(sockets);
    let submitted = async {
        loop {
            let body = json!({ "taskType": "sample.echo", "delay": "1d" });
            let reply = server.post("/api/tasks", &body).await;
            if reply.status == 202 {
                return;
            }
            assert_eq!(reply.status, 503);
        }
    };
    tokio::time::timeout(DEADLINE, submitted)
        .await
        .expect("there is room again");
}
