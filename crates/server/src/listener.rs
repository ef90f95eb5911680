//! The loop that accepts connections: each is bounded in number, in the time that its headers take, and in how long it may
//! leave an answer unread. HTTP/1.1 only.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::{Router, body::Body, http::Request};
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
    guard::Peer,
    identity::IdentityMode,
    mount::{Mount, with_mounts},
    router::router,
};

mod patience;

use patience::Patience;

/// How long the loop rests when the system cannot accept, for want of file handles mostly.
const REST: Duration = Duration::from_millis(100);
/// Headers of one request.
const HEADERS: usize = 64;
/// What one connection buffers, in bytes; a request's head must fit.
const BUFFER_BYTES: usize = 32 * 1024;

/// What connections may do.
#[derive(Debug, Clone, Copy)]
pub struct ListenerSettings {
    /// How long the head of a request may take, and how long a connection may be idle between two.
    pub header_timeout: Duration,
    /// How long a client may leave an answer unread.
    pub write_timeout: Duration,
    /// Connections at once.
    pub connections: usize,
    /// Connections at once from one address.
    pub connections_per_address: usize,
    /// How long requests that are under way may take after the stop.
    pub drain: Duration,
}

impl Default for ListenerSettings {
    fn default() -> Self {
        Self {
            header_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(30),
            connections: 10_000,
            connections_per_address: 6_000,
            drain: Duration::from_secs(10),
        }
    }
}

/// Serves the API and the applications beside it until `closing`, then lets what is under way end.
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
    let (router, guests) = (
        with_mounts(router(&api), &api, mounts),
        Arc::new(Guests::new(settings)),
    );
    let (tracker, cut) = (TaskTracker::new(), CancellationToken::new());
    loop {
        let accepted = tokio::select! {
            () = closing.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let Some(seat) = guests.seat(peer.ip()) else {
                    tracing::debug!(%peer, "too many connections: one is closed");
                    continue;
                };
                let place = Place {
                    cut: cut.clone(),
                    _held: Arc::new((seat, tracker.token())),
                };
                tokio::spawn(connection(
                    stream,
                    peer,
                    router.clone(),
                    settings,
                    place,
                    closing.clone(),
                ));
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(REST).await;
            }
        }
    }
    drop(listener);
    api.closing.cancel();
    tracker.close();
    if tokio::time::timeout(settings.drain, tracker.wait())
        .await
        .is_err()
    {
        tracing::warn!("requests that did not end in time are cut");
        cut.cancel();
        tracker.wait().await;
    }
    Ok(())
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    settings: ListenerSettings,
    place: Place,
    closing: CancellationToken,
) {
    let cut = place.cut.clone();
    // Answers are small and complete; waiting for company would only delay them.
    let _ = stream.set_nodelay(true);
    let service = hyper::service::service_fn(move |request: Request<hyper::body::Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Peer(peer));
        request.extensions_mut().insert(place.clone());
        router.clone().oneshot(request)
    });
    let io = TokioIo::new(Patience::new(stream, settings.write_timeout));
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.header_timeout)
        .max_headers(HEADERS)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(io, service)
        .with_upgrades();
    let mut serving = std::pin::pin!(serving);
    let ended = tokio::select! {
        ended = serving.as_mut() => ended,
        () = cut.cancelled() => return,
        () = closing.cancelled() => {
            serving.as_mut().graceful_shutdown();
            tokio::select! {
                ended = serving.as_mut() => ended,
                () = cut.cancelled() => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, %peer, "a connection ended badly");
    }
}

/// A connection's place among the others, and the promise to wait for it at the end. A connection that becomes a WebSocket
/// keeps it.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    cut: CancellationToken,
    _held: Arc<(Seat, TaskTrackerToken)>,
}

impl Place {
    /// Ends when whoever sits here has had their time after the stop, and must leave where they stand.
    pub(crate) async fn cut(&self) {
        self.cut.cancelled().await;
    }
}

/// Who is connected, in all and by address.
#[derive(Debug)]
struct Guests {
    most: usize,
    most_per_address: usize,
    seated: Mutex<Seated>,
}

#[derive(Debug, Default)]
struct Seated {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

impl Guests {
    fn new(settings: ListenerSettings) -> Self {
        let (most, most_per_address) = (settings.connections, settings.connections_per_address);
        Self {
            most,
            most_per_address,
            seated: Mutex::default(),
        }
    }

    fn seated(&self) -> std::sync::MutexGuard<'_, Seated> {
        self.seated.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection from this address, unless all are taken.
    fn seat(self: &Arc<Self>, address: IpAddr) -> Option<Seat> {
        let mut seated = self.seated();
        let here = seated.by_address.get(&address).copied().unwrap_or(0);
        if seated.all >= self.most || here >= self.most_per_address {
            return None;
        }
        seated.all += 1;
        seated.by_address.insert(address, here + 1);
        Some(Seat {
            guests: Arc::clone(self),
            address,
        })
    }
}

/// A seat that is free again when this is dropped.
#[derive(Debug)]
struct Seat {
    guests: Arc<Guests>,
    address: IpAddr,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut seated = self.guests.seated();
        seated.all -= 1;
        let here = seated.by_address.entry(self.address).or_default();
        *here = here.saturating_sub(1);
        if *here == 0 {
            seated.by_address.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_in_all_and_by_address() {
        let settings = ListenerSettings {
            connections: 3,
            connections_per_address: 2,
            ..ListenerSettings::default()
        };
        let guests = Arc::new(Guests::new(settings));
        let [one, two] = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
        let first = guests.seat(one);
        let _second = guests.seat(one).unwrap();
        assert!(guests.seat(one).is_none(), "the address has its share");
        let _third = guests.seat(two).unwrap();
        assert!(guests.seat(two).is_none(), "all places are taken");
        drop(first);
        assert!(guests.seat(two).is_some());
        assert_eq!(guests.seated().by_address.len(), 2);
    }
}
