//! Limits of connections, and shutdown.

use std::time::Duration;

use libtest_mimic::Trial;
use longhaul::server::{IdentityMode, ListenerSettings};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::database::Backend;
use crate::trial::once;
use crate::{
    client::{Call, DEADLINE, Reply, read_reply},
    server::Server,
};

pub(crate) fn trials() -> Vec<Trial> {
    once![
        a_slow_request_head_and_an_idle_connection_time_out,
        connections_of_one_address_are_limited,
        probes_are_answered_beyond_the_limit_and_other_requests_get_a_429,
        a_request_without_a_host_or_with_bare_line_feeds_is_refused,
        a_request_that_is_not_http_gets_a_problem_document,
        shutdown_ends_streams_and_refuses_connections,
        a_connection_serves_many_requests,
        a_chunked_body_over_the_limit_is_refused,
        dev_mode_listens_on_loopback_only
    ]
}

/// Reads until the server closes the connection.
async fn closed(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(DEADLINE, socket.read_to_end(&mut bytes))
        .await
        .expect("it is closed in time");
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn a_slow_request_head_and_an_idle_connection_time_out() {
    let settings = ListenerSettings {
        header_timeout: Duration::from_secs(2),
        ..ListenerSettings::default()
    };
    let server = Server::start_with(Backend::Sqlite, IdentityMode::Dev, settings).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let mut slow = TcpStream::connect(server.address).await.unwrap();

    slow.write_all(b"GET /healthz HTTP/1.1\r\nHost: loc")
        .await
        .unwrap();
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    idle.write_all(format!("GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", server.address).as_bytes())
        .await
        .unwrap();
    closed(&mut silent).await;
    assert!(!closed(&mut slow).await.contains("200 OK"));

    assert!(
        closed(&mut idle).await.starts_with("HTTP/1.1 200 OK"),
        "it was answered, and then closed"
    );
}

async fn connections_of_one_address_are_limited() {
    let settings = ListenerSettings {
        connections_per_address: 2,
        ..ListenerSettings::default()
    };
    let server = Server::start_with(Backend::Sqlite, IdentityMode::Dev, settings).await;
    let first = Call::get("/api/events").follow(server.address).await;
    let _second = Call::get("/api/events").follow(server.address).await;

    let mut third = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(closed(&mut third).await, "");
    drop(first);

    // The server notices the end of the first connection after a moment.
    let answered = async {
        loop {
            let mut again = TcpStream::connect(server.address).await.unwrap();
            let head = format!(
                "GET /healthz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
                server.address
            );
            let _ = again.write_all(head.as_bytes()).await;

            if closed(&mut again).await.contains("200 OK") {
                return;
            }
        }
    };

    tokio::time::timeout(DEADLINE, answered)
        .await
        .expect("a free connection in time");
}

async fn probes_are_answered_beyond_the_limit_and_other_requests_get_a_429() {
    let settings = ListenerSettings {
        connections_per_address: 2,
        ..ListenerSettings::default()
    };
    let server = Server::start_with(Backend::Sqlite, IdentityMode::Dev, settings).await;
    let _first = Call::get("/api/events").follow(server.address).await;
    let _second = Call::get("/api/events").follow(server.address).await;

    // More than there are reserved places, one after the other.
    for _ in 0..40 {
        server.get("/healthz").await.expect(200);
        server.get("/readyz").await.expect(200);
        let refused = server.get("/api/tasks").await;
        assert_eq!(refused.headers["retry-after"], "1");
        refused.problem(429, "too_many_connections");
    }
}

/// The answer to a text that is sent as it is.
async fn answer_to(server: &Server, text: &str) -> Reply {
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    socket.write_all(text.as_bytes()).await.unwrap();
    read_reply(&closed(&mut socket).await)
}

async fn a_request_without_a_host_or_with_bare_line_feeds_is_refused() {
    let server = Server::with_tokens(Backend::Sqlite).await;
    for text in [
        "GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n",
        "GET /healthz HTTP/1.1\nHost: localhost\nConnection: close\n\n",
        "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-A: 1\nConnection: close\r\n\r\n",
    ] {
        let reply = answer_to(&server, text).await;
        assert_eq!(reply.status, 400, "{text:?}: {reply:?}");
        reply.problem(400, "invalid_request");
    }

    let old = "GET /healthz HTTP/1.0\r\n\r\n";
    assert_eq!(
        answer_to(&server, old).await.status,
        200,
        "HTTP/1.0 has no Host"
    );
}

async fn a_request_that_is_not_http_gets_a_problem_document() {
    let server = Server::with_tokens(Backend::Sqlite).await;
    let many = (0..200)
        .map(|n| format!("X-{n}: 1\r\n"))
        .collect::<String>();
    for (text, status) in [
        ("\x16\x03\x01\x02\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/3.7\r\nHost: localhost\r\n\r\n".to_owned(), 400),
        (
            format!("GET / HTTP/1.1\r\nHost: localhost\r\n{many}\r\n"),
            431,
        ),
        (format!("GET /{} HTTP/1.1\r\n", "a".repeat(70_000)), 431),
    ] {
        let reply = answer_to(&server, &text).await;
        assert!(reply.headers.contains_key("x-request-id"), "{reply:?}");
        reply.problem(status, "invalid_request");
    }
}

async fn shutdown_ends_streams_and_refuses_connections() {
    let server = Server::start(Backend::Sqlite).await;
    let mut events = Call::get("/api/events").follow(server.address).await;
    assert_eq!(events.next().await.unwrap().name, "state");
    server.closing.cancel();
    assert_eq!(events.next().await, None);
    tokio::time::timeout(DEADLINE, server.serving)
        .await
        .expect("the server ends in time")
        .unwrap();

    assert!(TcpStream::connect(server.address).await.is_err());
}

async fn a_connection_serves_many_requests() {
    let server = Server::start(Backend::Sqlite).await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let body = json!({ "taskType": "sample.echo", "delay": "1d" }).to_string();

    for n in 0..3 {
        let close = if n == 2 { "Connection: close\r\n" } else { "" };
        let head = format!(
            "POST /api/tasks HTTP/1.1\r\nHost: {}\r\nContent-Type: \
             application/json\r\n{close}Content-Length: {}\r\n\r\n",
            server.address,
            body.len()
        );
        socket.write_all((head + &body).as_bytes()).await.unwrap();
    }

    assert_eq!(closed(&mut socket).await.matches("202 Accepted").count(), 3);
}

async fn a_chunked_body_over_the_limit_is_refused() {
    let server = Server::start(Backend::Sqlite).await;
    let mut socket = TcpStream::connect(server.address).await.unwrap();
    let head = "POST /api/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    socket.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));

    for _ in 0..17 {
        if socket.write_all(chunk.as_bytes()).await.is_err() {
            break;
        }
    }

    let mut answer = vec![0; 64];
    let read = tokio::time::timeout(DEADLINE, socket.read(&mut answer))
        .await
        .unwrap()
        .unwrap();
    assert!(String::from_utf8_lossy(&answer[..read]).starts_with("HTTP/1.1 413"));
}

async fn dev_mode_listens_on_loopback_only() {
    let server = Server::start(Backend::Sqlite).await;
    let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
    let closing = longhaul::server::CancellationToken::new();
    let settings = ListenerSettings::default();
    let refused = server
        .longhaul
        .serve(listener, IdentityMode::Dev, settings, closing)
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("loopback"));
}
