//! The fault proxy does what it says, on real sockets.

#![expect(
    clippy::unwrap_used,
    reason = "a test: what is not as it must be stops it"
)]

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use longhaul_testkit::fault_proxy::{Fault, FaultProxy, Way};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// Everything here happens within this, unless something is wrong.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long a silence must last to count as one. A shorter one could only make a test too mild.
const SILENCE: Duration = Duration::from_millis(150);

/// A server that answers each byte with the same byte, and tells what it heard: `None` is the end of a connection.
async fn echo() -> (SocketAddr, mpsc::UnboundedReceiver<Option<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, told) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let tell = tell.clone();
            tokio::spawn(async move {
                while let Ok(byte) = stream.read_u8().await {
                    let _ = tell.send(Some(byte));
                    if stream.write_u8(byte).await.is_err() {
                        break;
                    }
                }
                let _ = tell.send(None);
            });
        }
    });
    (address, told)
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, what).await.unwrap()
}

async fn is_silent<T>(what: impl Future<Output = T>) -> bool {
    tokio::time::timeout(SILENCE, what).await.is_err()
}

async fn said(client: &mut TcpStream, byte: u8) -> io::Result<u8> {
    client.write_u8(byte).await?;
    in_time(client.read_u8()).await
}

async fn connected(proxy: &FaultProxy) -> TcpStream {
    in_time(TcpStream::connect(proxy.address())).await.unwrap()
}

#[tokio::test]
async fn a_healthy_proxy_passes_everything_and_its_end() {
    let (server, mut heard) = echo().await;
    let proxy = FaultProxy::before(server, 1).await.unwrap();
    let mut client = connected(&proxy).await;
    assert_eq!(said(&mut client, 7).await.unwrap(), 7);
    client.shutdown().await.unwrap();
    assert_eq!(
        in_time(client.read(&mut [0])).await.unwrap(),
        0,
        "the server has ended its side"
    );
    assert_eq!(
        (in_time(heard.recv()).await, in_time(heard.recv()).await),
        (Some(Some(7)), Some(None))
    );
    in_time(proxy.until_open(0)).await;
}

#[tokio::test]
async fn a_client_that_is_killed_takes_the_servers_side_with_it() {
    let (server, mut heard) = echo().await;
    let proxy = FaultProxy::before(server, 1).await.unwrap();
    let mut client = connected(&proxy).await;
    assert_eq!(said(&mut client, 7).await.unwrap(), 7);
    // What the kernel does for a killed process with unread answers.
    client.set_zero_linger().unwrap();
    drop(client);
    assert_eq!(
        (in_time(heard.recv()).await, in_time(heard.recv()).await),
        (Some(Some(7)), Some(None))
    );
    in_time(proxy.until_open(0)).await;
}

#[tokio::test]
async fn a_cut_resets_what_is_open_and_what_comes_until_it_heals() {
    let (server, _heard) = echo().await;
    let proxy = FaultProxy::before(server, 1).await.unwrap();
    let mut open = connected(&proxy).await;
    assert_eq!(said(&mut open, 1).await.unwrap(), 1);
    proxy.set(Fault::Cut);
    assert_eq!(
        in_time(open.read_u8()).await.unwrap_err().kind(),
        io::ErrorKind::ConnectionReset
    );
    let mut late = connected(&proxy).await;
    assert!(said(&mut late, 2).await.is_err());
    proxy.heal();
    assert_eq!(said(&mut connected(&proxy).await, 3).await.unwrap(), 3);
}

#[tokio::test]
async fn a_cut_that_heals_at_once_has_still_cut() {
    let (server, _heard) = echo().await;
    let proxy = FaultProxy::before(server, 1).await.unwrap();
    let mut open = connected(&proxy).await;
    assert_eq!(said(&mut open, 1).await.unwrap(), 1);
    proxy.set(Fault::Cut);
    proxy.heal();
    assert_eq!(
        in_time(open.read_u8()).await.unwrap_err().kind(),
        io::ErrorKind::ConnectionReset
    );
}

#[tokio::test]
async fn a_black_hole_swallows_nothing_and_tells_nobody() {
    let (server, mut heard) = echo().await;
    let proxy = FaultProxy::before(server, 1).await.unwrap();
    let mut open = connected(&proxy).await;
    assert_eq!(said(&mut open, 1).await.unwrap(), 1);
    assert_eq!(in_time(heard.recv()).await, Some(Some(1)));
    proxy.set(Fault::Blackhole);
    open.write_u8(2).await.unwrap();
    let mut late = connected(&proxy).await;
    late.write_u8(3).await.unwrap();
    assert!(is_silent(heard.recv()).await && is_silent(open.read_u8()).await);
    proxy.heal();
    assert_eq!(
        (
            in_time(open.read_u8()).await.unwrap(),
            in_time(late.read_u8()).await.unwrap()
        ),
        (2, 3)
    );
}

#[tokio::test]
async fn one_way_holds_answers_while_questions_pass() {
    let (server, mut heard) = echo().await;
    let proxy = FaultProxy::before(server, 1).await.unwrap();
    let mut open = connected(&proxy).await;
    assert_eq!(said(&mut open, 1).await.unwrap(), 1);
    assert_eq!(in_time(heard.recv()).await, Some(Some(1)));
    proxy.set(Fault::OneWay {
        held: Way::ToClient,
    });
    open.write_u8(2).await.unwrap();
    assert_eq!(in_time(heard.recv()).await, Some(Some(2)));
    assert!(is_silent(open.read_u8()).await);
    proxy.heal();
    assert_eq!(in_time(open.read_u8()).await.unwrap(), 2);
    proxy.set(Fault::OneWay {
        held: Way::ToServer,
    });
    open.write_u8(3).await.unwrap();
    assert!(is_silent(heard.recv()).await);
    proxy.heal();
    assert_eq!(in_time(open.read_u8()).await.unwrap(), 3);
}

#[tokio::test]
async fn a_half_open_connection_never_speaks_again() {
    let (server, mut heard) = echo().await;
    let proxy = FaultProxy::before(server, 1).await.unwrap();
    let mut open = connected(&proxy).await;
    assert_eq!(said(&mut open, 1).await.unwrap(), 1);
    assert_eq!(in_time(heard.recv()).await, Some(Some(1)));
    proxy.set(Fault::HalfOpen);
    assert_eq!(
        in_time(heard.recv()).await,
        Some(None),
        "the server has lost its side"
    );
    open.write_u8(2).await.unwrap();
    proxy.heal();
    assert!(is_silent(open.read_u8()).await, "the client has not");
    assert_eq!(said(&mut connected(&proxy).await, 3).await.unwrap(), 3);
    drop(open);
    in_time(proxy.until_open(0)).await;
}

#[tokio::test]
async fn a_delay_makes_both_ways_late() {
    let (server, _heard) = echo().await;
    let proxy = FaultProxy::before(server, 1).await.unwrap();
    let mut client = connected(&proxy).await;
    proxy.set(Fault::Delay(Duration::from_millis(60)));
    let asked = Instant::now();
    assert_eq!(said(&mut client, 1).await.unwrap(), 1);
    assert!(
        asked.elapsed() >= Duration::from_millis(120),
        "{:?}",
        asked.elapsed()
    );
}

#[tokio::test]
async fn a_lossy_network_loses_its_share_of_connections() {
    let (server, _heard) = echo().await;
    let proxy = FaultProxy::before(server, 7).await.unwrap();
    let mut open = connected(&proxy).await;
    assert_eq!(said(&mut open, 1).await.unwrap(), 1);
    proxy.set(Fault::Lossy { percent: 0 });
    assert_eq!(said(&mut open, 2).await.unwrap(), 2);
    proxy.set(Fault::Lossy { percent: 50 });
    let mut lost = 0;
    for _ in 0..40 {
        lost += usize::from(said(&mut connected(&proxy).await, 1).await.is_err());
    }
    assert!((5..=35).contains(&lost), "{lost} of 40");
    proxy.set(Fault::Lossy { percent: 100 });
    assert!(said(&mut connected(&proxy).await, 1).await.is_err());
    assert!(said(&mut open, 3).await.is_err(), "also what was open");
}

#[tokio::test]
async fn a_server_that_is_away_is_away_behind_the_proxy_and_comes_back_behind_it() {
    let parked = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = parked.local_addr().unwrap();
    drop(parked);
    let proxy = FaultProxy::before(server, 1).await.unwrap();
    assert!(said(&mut connected(&proxy).await, 1).await.is_err());
    let listener = TcpListener::bind(server).await.unwrap();
    let mut client = connected(&proxy).await;
    client.write_u8(9).await.unwrap();
    let (mut accepted, _) = in_time(listener.accept()).await.unwrap();
    assert_eq!(in_time(accepted.read_u8()).await.unwrap(), 9);
}
