//! A TCP proxy between a process and a server that simulates network faults.
//!
//! [`FaultProxy::set`] sets the fault for all connections, open and new. Blocked bytes wait in the
//! kernel's buffers and pass when the proxy heals, as they do when a network recovers in time. A
//! connection that was reset or lost its other half does not recover.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Bytes that are copied at once. A delay applies to each piece, so it also limits the bandwidth.
const PIECE_BYTES: usize = 64 * 1_024;

/// The direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    ToServer,
    ToClient,
}

/// A fault of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No fault.
    None,
    /// Open connections are reset, and new ones at once.
    Cut,
    /// No bytes pass and no connection is closed. New connections are accepted but get no answer.
    Blackhole,
    /// The server's side of every open connection is closed, but the client's side stays open, even
    /// after the proxy heals. Until then new connections get no answer.
    HalfOpen,
    /// Bytes in one direction are blocked.
    OneWay { blocked: Way },
    /// Each piece of up to 64 KiB is delayed in both directions.
    Delay(Duration),
    /// This share of the open and of the new connections is reset.
    Lossy { percent: u8 },
}

impl Fault {
    /// Whether bytes pass in this direction.
    fn passes(self, way: Way) -> bool {
        match self {
            Self::None | Self::Delay(_) | Self::Lossy { .. } => true,
            Self::Cut | Self::Blackhole | Self::HalfOpen => false,
            Self::OneWay { blocked } => blocked != way,
        }
    }

    fn delay(self) -> Duration {
        match self {
            Self::Delay(delay) => delay,
            Self::None
            | Self::Cut
            | Self::Blackhole
            | Self::HalfOpen
            | Self::OneWay { .. }
            | Self::Lossy { .. } => Duration::ZERO,
        }
    }
}

/// The state that all connections watch. The counters show a connection what happened since it was
/// opened, even if the fault is over by then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NetworkState {
    fault: Fault,
    cuts: u64,
    halves: u64,
    losses: u64,
}

/// How a connection has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Reset,
    HalfOpen,
}

/// A proxy on its own port. Dropping it stops it and resets its connections.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    network: watch::Sender<NetworkState>,
    open: watch::Sender<usize>,
    accepting: JoinHandle<()>,
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.set(Fault::Cut);
    }
}

impl FaultProxy {
    /// Starts a healthy proxy before this server. The seed decides which connections a lossy
    /// network resets.
    pub async fn before(server: SocketAddr, seed: u64) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let network = watch::Sender::new(NetworkState {
            fault: Fault::None,
            cuts: 0,
            halves: 0,
            losses: 0,
        });

        let open = watch::Sender::new(0);
        let chance = Chance(Arc::new(Mutex::new(StdRng::seed_from_u64(seed))));
        let accepting = tokio::spawn(accept(
            listener,
            server,
            network.subscribe(),
            open.clone(),
            chance,
        ));

        Ok(Self {
            address,
            network,
            open,
            accepting,
        })
    }

    /// The address for clients.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn set(&self, fault: Fault) {
        self.network.send_modify(|network| {
            network.fault = fault;
            match fault {
                Fault::Cut => network.cuts += 1,
                Fault::HalfOpen => network.halves += 1,
                Fault::Lossy { .. } => network.losses += 1,
                Fault::None | Fault::Blackhole | Fault::OneWay { .. } | Fault::Delay(_) => {}
            }
        });
    }

    pub fn heal(&self) {
        self.set(Fault::None);
    }

    pub fn fault(&self) -> Fault {
        self.network.borrow().fault
    }

    /// Waits until this many connections are open.
    pub async fn until_open(&self, wanted: usize) {
        // This cannot fail, because the proxy owns the sender.
        let _ = self.open.subscribe().wait_for(|open| *open == wanted).await;
    }
}

/// Decides which connections are lost.
#[derive(Debug, Clone)]
struct Chance(Arc<Mutex<StdRng>>);

impl Chance {
    fn hits(&self, percent: u8) -> bool {
        // All connections draw from one source, so that a seed decides them all.
        let mut random = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        random.random_range(0..100) < percent
    }
}

async fn accept(
    listener: TcpListener,
    server: SocketAddr,
    network: watch::Receiver<NetworkState>,
    open: watch::Sender<usize>,
    chance: Chance,
) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            // Out of file handles, for example. The client waits until the next attempt.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let network = network.clone();
        let open = open.clone();
        let chance = chance.clone();

        // Each connection runs alone, so that a blocked one does not block the others.
        tokio::spawn(async move {
            open.send_modify(|open| *open += 1);
            carry(client, server, network, chance).await;
            open.send_modify(|open| *open -= 1);
        });
    }
}

/// Carries one connection until it ends.
async fn carry(
    client: TcpStream,
    server: SocketAddr,
    mut network: watch::Receiver<NetworkState>,
    chance: Chance,
) {
    let first = *network.borrow_and_update();
    let is_lost = match first.fault {
        Fault::Cut => true,
        Fault::Lossy { percent } => chance.hits(percent),
        Fault::None
        | Fault::Blackhole
        | Fault::HalfOpen
        | Fault::OneWay { .. }
        | Fault::Delay(_) => false,
    };
    if is_lost {
        return reset(&client);
    }

    // A handshake needs both directions, so a connection waits until the fault is over.
    let reached = async {
        let mut network = network.clone();
        let clear =
            |now: &NetworkState| now.fault.passes(Way::ToServer) && now.fault.passes(Way::ToClient);
        network.wait_for(clear).await.ok()?;
        TcpStream::connect(server).await.ok()
    };

    // A fault that resets connections also ends one that still waits for the server.
    let mut ending = network.clone();
    let upstream = tokio::select! {
        reached = reached => reached,
        _ = ended(&mut ending, first, &chance) => None,
    };
    let Some(upstream) = upstream else {
        return reset(&client);
    };
    // Without it small pieces would be late.
    let _ = client.set_nodelay(true);
    let _ = upstream.set_nodelay(true);

    let mut client = client;
    let mut upstream = upstream;
    let end = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = upstream.split();

        // A killed process resets its connection. The proxy then resets the other side too.
        let both = async {
            tokio::try_join!(
                pump(from_client, to_server, Way::ToServer, network.clone()),
                pump(from_server, to_client, Way::ToClient, network.clone())
            )
        };

        // Whichever comes first: the end of the streams, or a fault that ends the connection.
        tokio::select! {
            ended = both => ended.err().map(|_| End::Reset),
            end = ended(&mut ending, first, &chance) => Some(end),
        }
    };

    match end {
        None => {}
        Some(End::Reset) => {
            reset(&client);
            reset(&upstream);
        }
        Some(End::HalfOpen) => {
            reset(&upstream);
            drop(upstream);
            hold(client).await;
        }
    }
}

/// Waits until a fault ends a connection that was opened in the state `first`.
async fn ended(
    network: &mut watch::Receiver<NetworkState>,
    first: NetworkState,
    chance: &Chance,
) -> End {
    let mut losses = first.losses;
    loop {
        let now = *network.borrow_and_update();
        if now.cuts > first.cuts {
            return End::Reset;
        }
        if now.halves > first.halves {
            return End::HalfOpen;
        }
        if let Fault::Lossy { percent } = now.fault
            && now.losses > losses
            && chance.hits(percent)
        {
            return End::Reset;
        }

        losses = now.losses;
        if network.changed().await.is_err() {
            return End::Reset;
        }
    }
}

/// Copies bytes in one direction until their source ends, and then closes that direction.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    way: Way,
    mut network: watch::Receiver<NetworkState>,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = from.read(&mut piece).await?;
        let at = Instant::now();
        let gone = |_| io::Error::from(io::ErrorKind::ConnectionReset);
        let passing = network.wait_for(|now| now.fault.passes(way)).await;
        let delay = passing.map_err(gone)?.fault.delay();

        tokio::time::sleep_until(at + delay).await;
        if read == 0 {
            return to.shutdown().await;
        }

        to.write_all(&piece[..read]).await?;
    }
}

/// Keeps a client's connection open until the client closes it.
async fn hold(mut client: TcpStream) {
    let mut piece = vec![0; 1_024];
    while matches!(client.read(&mut piece).await, Ok(1..)) {}
}

/// Makes a connection end with a reset instead of an orderly close when it is dropped.
fn reset(stream: &TcpStream) {
    // It fails on a closed connection, which needs no reset.
    let _ = stream.set_zero_linger();
}
