//! The accept loop. It bounds the number of connections, the time that the head of a request takes,
//! and the time that a response may stay unread. HTTP/1.1 only.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::{Router, body::Body, http::Request};
use futures::TryFutureExt as _;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};
use tower::ServiceExt as _;

use crate::{
    api::{Api, ServerError},
    body::ArrivingBody,
    guard::Peer,
    identity::IdentityMode,
    mount::{Mount, with_mounts},
    router::router,
};

mod head_check;
mod limits;
mod write_timeout;

use head_check::{HeadCheck, IsAnswering};
use limits::{ConnectionLimits, ConnectionSlot};
use write_timeout::WriteTimeout;

/// The pause after a failed accept, usually because the process has no free file handle.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Headers of one request.
const HEADERS: usize = 64;
/// How long the head of a request may take on a connection that is reserved for probes.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// The buffer of one connection in bytes. The head of a request must fit.
const BUFFER_BYTES: usize = 32 * 1024;

/// Bounds on connections and what they may use.
#[derive(Debug, Clone, Copy)]
pub struct ListenerSettings {
    /// How long the head of a request may take. Also how long a connection may idle between two
    /// requests.
    pub header_timeout: Duration,
    /// How long a client may leave a response unread.
    pub write_timeout: Duration,
    /// Concurrent connections.
    pub connections: usize,
    /// Concurrent connections from one address.
    pub connections_per_address: usize,
    /// Connections beyond these limits that may ask for `/healthz` and `/readyz` only.
    pub probe_connections: usize,
    /// Live streams of one token.
    pub streams_per_token: usize,
    /// Live streams of one owner. A caller with the scope `admin` is exempt.
    pub streams_per_owner: usize,
    /// Bytes of request bodies in memory.
    pub body_bytes: usize,
    /// Bytes of request bodies in memory that one token may use, or one user without tokens.
    pub body_bytes_per_token: usize,
    /// The least rate of a request body, in bytes a second.
    pub body_rate: usize,
    /// How long open requests may take after shutdown begins.
    pub drain: Duration,
}

impl Default for ListenerSettings {
    fn default() -> Self {
        Self {
            header_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(30),
            connections: 10_000,
            connections_per_address: 6_000,
            probe_connections: 16,
            streams_per_token: 2_000,
            streams_per_owner: 200,
            body_bytes: 64 * 1024 * 1024,
            body_bytes_per_token: 16 * 1024 * 1024,
            body_rate: 16 * 1024,
            drain: Duration::from_secs(10),
        }
    }
}

/// Serves the API and the mounted applications until `closing`, then drains open requests.
pub async fn serve(
    listener: TcpListener,
    api: Arc<Api>,
    mounts: Vec<Mount>,
    settings: ListenerSettings,
    closing: CancellationToken,
) -> Result<(), ServerError> {
    let address = listener.local_addr()?;
    if api.identity == IdentityMode::Dev && !address.ip().is_loopback() {
        return Err(ServerError::NotLoopback(address));
    }

    let server = Server {
        router: with_mounts(router(&api), &api, mounts),
        limits: Arc::new(ConnectionLimits::new(settings)),
        settings,
        open: TaskTracker::new(),
        abort: CancellationToken::new(),
        closing,
    };
    server.accept(&listener).await;

    // New connections are refused before the open ones are asked to end.
    drop(listener);
    api.closing.cancel();
    server.drain().await;

    Ok(())
}

struct Server {
    router: Router,
    limits: Arc<ConnectionLimits>,
    settings: ListenerSettings,
    /// Counts open connections, WebSockets included.
    open: TaskTracker,
    /// Cancelled when the time to drain is over.
    abort: CancellationToken,
    closing: CancellationToken,
}

impl Server {
    async fn accept(&self, listener: &TcpListener) {
        loop {
            // Both branches are cancel safe: a connection that loses to shutdown was not accepted.
            let accepted = tokio::select! {
                () = self.closing.cancelled() => return,
                accepted = listener.accept() => accepted,
            };

            match accepted {
                Ok((stream, peer)) => self.admit(stream, peer),
                Err(error) => {
                    tracing::warn!(%error, "listener: accept failed; retrying");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }

    fn admit(&self, stream: TcpStream, peer: SocketAddr) {
        let Some(slot) = self.limits.try_acquire(peer.ip()) else {
            tracing::debug!(%peer, "listener: connection limit reached; closing the connection");
            return;
        };
        let mut settings = self.settings;
        if slot.is_for_probes() {
            settings.header_timeout = settings.header_timeout.min(PROBE_TIMEOUT);
        }
        let connection = Connection {
            abort: self.abort.clone(),
            is_for_probes: slot.is_for_probes(),
            _slot: Arc::new((slot, self.open.token())),
        };

        // Each connection has a task of its own, so that a slow client delays no other.
        tokio::spawn(serve_connection(
            stream,
            peer,
            self.router.clone(),
            settings,
            connection,
            self.closing.clone(),
        ));
    }

    async fn drain(&self) {
        self.open.close();
        let drained = tokio::time::timeout(self.settings.drain, self.open.wait()).await;
        if drained.is_ok() {
            return;
        }

        tracing::warn!("listener: requests did not end in time; closing their connections");
        self.abort.cancel();
        self.open.wait().await;
    }
}

async fn serve_connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    settings: ListenerSettings,
    connection: Connection,
    closing: CancellationToken,
) {
    let abort = connection.abort.clone();
    // A connection that is reserved for probes answers one of them.
    let keep_alive = !connection.is_for_probes;

    // Responses are small and written whole: Nagle's algorithm would only delay them.
    let _ = stream.set_nodelay(true);
    let is_answering = IsAnswering::default();
    let io = WriteTimeout::new(stream, settings.write_timeout);
    let io = HeadCheck::new(io, is_answering.clone());

    let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
        is_answering.begin();
        let is_answering = is_answering.clone();
        let (parts, body) = request.into_parts();
        let body = ArrivingBody::new(&parts.headers, Body::new(body), settings.body_rate);
        let mut request = Request::from_parts(parts, Body::new(body));
        request.extensions_mut().insert(Peer(peer));
        request.extensions_mut().insert(connection.clone());
        let answered = router.clone().oneshot(request);
        answered.map_ok(|response| is_answering.until_sent(response))
    });

    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.header_timeout)
        .keep_alive(keep_alive)
        .max_headers(HEADERS)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(io), service)
        .with_upgrades();
    let mut serving = std::pin::pin!(serving);

    // Shutdown lets the current request finish; abort ends the connection at once.
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = abort.cancelled() => return,
        () = closing.cancelled() => {
            serving.as_mut().graceful_shutdown();
            tokio::select! {
                ended = serving.as_mut() => ended,
                () = abort.cancelled() => return,
            }
        }
    };

    if let Err(error) = ended {
        tracing::debug!(%error, %peer, "listener: connection failed");
    }
}

/// An open connection: shutdown waits until the last clone is dropped. A WebSocket holds one after
/// the upgrade.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    abort: CancellationToken,
    /// Whether it is beyond the limits, so that it may ask for probes only.
    pub(crate) is_for_probes: bool,
    _slot: Arc<(ConnectionSlot, TaskTrackerToken)>,
}

impl Connection {
    /// Completes when the time to drain is over and the connection must close at once.
    pub(crate) async fn aborted(&self) {
        self.abort.cancelled().await;
    }
}
