//! A TCP proxy that breaks: it stands between a process and a server, and does to their connection what networks do.
//!
//! [`FaultProxy::set`] changes the weather for all connections, those that are open and those that come. What a fault
//! holds back waits in the kernel's buffers and goes on when the proxy heals, as it does when a network comes back in
//! time; a connection that was cut or lost its other half stays so.

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

/// Bytes that are carried at once. A delay holds each piece back, so a slow link is a narrow one, too.
const PIECE_BYTES: usize = 64 * 1_024;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    ToServer,
    ToClient,
}

/// What is wrong with the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Connections are reset, and new ones are as soon as they come.
    Cut,
    /// Nothing passes and nobody is told. New connections are taken and hear nothing.
    Blackhole,
    /// The server loses its side of every open connection, and the client is not told, not even when the proxy heals.
    /// New connections hear nothing until then.
    HalfOpen,
    /// Bytes that go this way wait; the others pass.
    OneWay { held: Way },
    /// Each piece of up to 64 KiB is late by this, both ways.
    Delay(Duration),
    /// This share of connections is reset: of those that are open now, and of those that come.
    Lossy { percent: u8 },
}

impl Fault {
    /// Whether bytes go this way.
    fn passes(self, way: Way) -> bool {
        match self {
            Self::None | Self::Delay(_) | Self::Lossy { .. } => true,
            Self::Cut | Self::Blackhole | Self::HalfOpen => false,
            Self::OneWay { held } => held != way,
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

/// What all connections see. The counts tell a connection what has happened since it was made, also when the fault is
/// over by the time it looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Weather {
    fault: Fault,
    cuts: u64,
    halves: u64,
    losses: u64,
}

/// How a connection is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Reset,
    HalfOpen,
}

/// A proxy on a port of its own. Dropping it ends it and resets its connections.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    weather: watch::Sender<Weather>,
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
    /// Stands before this server, healthy. The seed decides which connections a lossy network loses.
    pub async fn before(server: SocketAddr, seed: u64) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let weather = watch::Sender::new(Weather {
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
            weather.subscribe(),
            open.clone(),
            chance,
        ));
        Ok(Self {
            address,
            weather,
            open,
            accepting,
        })
    }

    /// Where clients connect to.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn set(&self, fault: Fault) {
        self.weather.send_modify(|weather| {
            weather.fault = fault;
            match fault {
                Fault::Cut => weather.cuts += 1,
                Fault::HalfOpen => weather.halves += 1,
                Fault::Lossy { .. } => weather.losses += 1,
                Fault::None | Fault::Blackhole | Fault::OneWay { .. } | Fault::Delay(_) => {}
            }
        });
    }

    pub fn heal(&self) {
        self.set(Fault::None);
    }

    pub fn fault(&self) -> Fault {
        self.weather.borrow().fault
    }

    /// Waits until so many connections are open.
    pub async fn until_open(&self, wanted: usize) {
        // The sender is this proxy's own, so it is there.
        let _ = self.open.subscribe().wait_for(|open| *open == wanted).await;
    }
}

/// Which connections are lost.
#[derive(Debug, Clone)]
struct Chance(Arc<Mutex<StdRng>>);

impl Chance {
    fn falls(&self, percent: u8) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .random_range(0..100)
            < percent
    }
}

async fn accept(
    listener: TcpListener,
    server: SocketAddr,
    weather: watch::Receiver<Weather>,
    open: watch::Sender<usize>,
    chance: Chance,
) {
    loop {
        let Ok((client, _)) = listener.accept().await else {
            // Out of file handles, for example: whoever waits is answered later.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (weather, open, chance) = (weather.clone(), open.clone(), chance.clone());
        tokio::spawn(async move {
            open.send_modify(|open| *open += 1);
            carry(client, server, weather, chance).await;
            open.send_modify(|open| *open -= 1);
        });
    }
}

/// One connection from its beginning to its end.
async fn carry(
    client: TcpStream,
    server: SocketAddr,
    mut weather: watch::Receiver<Weather>,
    chance: Chance,
) {
    let first = *weather.borrow_and_update();
    let is_lost = match first.fault {
        Fault::Cut => true,
        Fault::Lossy { percent } => chance.falls(percent),
        Fault::None
        | Fault::Blackhole
        | Fault::HalfOpen
        | Fault::OneWay { .. }
        | Fault::Delay(_) => false,
    };
    if is_lost {
        return reset(&client);
    }
    // A handshake needs both ways; who connects in bad weather is connected when it is over.
    let reached = async {
        let mut weather = weather.clone();
        let clear =
            |now: &Weather| now.fault.passes(Way::ToServer) && now.fault.passes(Way::ToClient);
        weather.wait_for(clear).await.ok()?;
        TcpStream::connect(server).await.ok()
    };
    let mut ending = weather.clone();
    let upstream = tokio::select! {
        reached = reached => reached,
        _ = ended(&mut ending, first, &chance) => None,
    };
    let Some(upstream) = upstream else {
        return reset(&client);
    };
    let _ = (client.set_nodelay(true), upstream.set_nodelay(true));
    let (mut client, mut upstream) = (client, upstream);
    let end = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = upstream.split();
        // A process that is killed resets its connections, and the other side must not be left waiting.
        let both = async {
            tokio::try_join!(
                pump(from_client, to_server, Way::ToServer, weather.clone()),
                pump(from_server, to_client, Way::ToClient, weather.clone())
            )
        };
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

/// Waits until the weather ends a connection that began in the weather `first`.
async fn ended(weather: &mut watch::Receiver<Weather>, first: Weather, chance: &Chance) -> End {
    let mut losses = first.losses;
    loop {
        let now = *weather.borrow_and_update();
        if now.cuts > first.cuts {
            return End::Reset;
        }
        if now.halves > first.halves {
            return End::HalfOpen;
        }
        if let Fault::Lossy { percent } = now.fault
            && now.losses > losses
            && chance.falls(percent)
        {
            return End::Reset;
        }
        losses = now.losses;
        if weather.changed().await.is_err() {
            return End::Reset;
        }
    }
}

/// Carries bytes one way until their source ends, and tells the other side that it has.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    way: Way,
    mut weather: watch::Receiver<Weather>,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = from.read(&mut piece).await?;
        let at = Instant::now();
        let gone = |_| io::Error::from(io::ErrorKind::ConnectionReset);
        let delay = weather
            .wait_for(|now| now.fault.passes(way))
            .await
            .map_err(gone)?
            .fault
            .delay();
        tokio::time::sleep_until(at + delay).await;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&piece[..read]).await?;
    }
}

/// Keeps a client connected to nobody until it goes away.
async fn hold(mut client: TcpStream) {
    let mut piece = vec![0; 1_024];
    while matches!(client.read(&mut piece).await, Ok(1..)) {}
}

/// Ends a connection as a network does: with a reset instead of a goodbye, once it is dropped.
fn reset(stream: &TcpStream) {
    // A connection that is gone already needs none.
    let _ = stream.set_zero_linger();
}
