//! The fault proxy on real sockets.

#![expect(clippy::unwrap_used, reason = "a test: a failed expectation stops it")]

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use longhaul_testkit::fault_proxy::{Fault, FaultProxy, Way};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// The longest wait of a test.
const DEADLINE: Duration = Duration::from_secs(60);
/// How long nothing must arrive to count as silence. A shorter time would only weaken the tests.
const SILENCE: Duration = Duration::from_millis(150);

/// A server that answers each byte with the same byte and reports what it received. `None` is the
/// end of a connection.
async fn echo() -> (SocketAddr, mpsc::UnboundedReceiver<Option<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = mpsc::unbounded_channel();

    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let sender = sender.clone();
            tokio::spawn(async move {
                while let Ok(byte) = stream.read_u8().await {
                    let _ = sender.send(Some(byte));
                    if stream.write_u8(byte).await.is_err() {
                        break;
                    }
                }
                let _ = sender.send(None);
            });
        }
    });

    (address, receiver)
}

async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, what).await.unwrap()
}

async fn is_silent<T>(what: impl Future<Output = T>) -> bool {
    tokio::time::timeout(SILENCE, what).await.is_err()
}

async fn echoed(client: &mut TcpStream, byte: u8) -> io::Result<u8> {
    client.write_u8(byte).await?;
    in_time(client.read_u8()).await
}

async fn connected(proxy: &FaultProxy) -> TcpStream {
    in_time(TcpStream::connect(proxy.address())).await.unwrap()
}

#[tokio::test]
async fn a_healthy_proxy_passes_all_bytes_and_the_end() {
    let (server, mut received) = echo().await;
    let proxy = FaultProxy::before(server, 1).await.unwrap();
    let mut client = connected(&proxy).await;
    assert_eq!(echoed(&mut client, 7).await.unwrap(), 7);
    client.shutdown().await.unwrap();
    assert_eq!(
        in_time(client.read(&mut [0])).await.unwrap(),
        0,
        "the server has ended its side"
    );

    assert_eq!(
        (
            in_time(received.recv()).await,
            in_time(received.recv()).await
        ),
        (Some(Some(7)), Some(None))
    );
    in_time(proxy.until_open(0)).await;
}

#[tokio::test]
async fn a_killed_client_ends_the_servers_side() {
    let (server, mut received) = echo().await;
    let proxy = FaultProxy::before(server, 1).await.unwrap();
    let mut client = connected(&proxy).await;
    assert_eq!(echoed(&mut client, 7).await.unwrap(), 7);

    // The kernel does the same for a killed process with unread answers.
    client.set_zero_linger().unwrap();
    drop(client);
    assert_eq!(
        (
            in_time(received.recv()).await,
            in_time(received.recv()).await
        ),
        (Some(Some(7)), Some(None))
    );
    in_time(proxy.until_open(0)).await;
}

#[tokio::test]
async fn a_cut_resets_open_and_new_connections_until_it_heals() {
    let (server, _received) = echo().await;
    let proxy = FaultProxy::before(server, 1).await.unwrap();
    let mut open = connected(&proxy).await;
    assert_eq!(echoed(&mut open, 1).await.unwrap(), 1);
    proxy.set(Fault::Cut);
    assert_eq!(
        in_time(open.read_u8()).await.unwrap_err().kind(),
        io::ErrorKind::ConnectionReset
    );

    let mut late = connected(&proxy).await;
    assert!(echoed(&mut late, 2).await.is_err());
    proxy.heal();
    assert_eq!(echoed(&mut connected(&proxy).await, 3).await.unwrap(), 3);
}

#[tokio::test]
async fn a_cut_that_heals_at_once_still_resets() {
    let (server, _received) = echo().await;
    let proxy = FaultProxy::before(server, 1).await.unwrap();
    let mut open = connected(&proxy).await;
    assert_eq!(echoed(&mut open, 1).await.unwrap(), 1);
    proxy.set(Fault::Cut);
    proxy.heal();
    assert_eq!(
        in_time(open.read_u8()).await.unwrap_err().kind(),
        io::ErrorKind::ConnectionReset
    );
}

#[tokio::test]
async fn a_blackhole_delays_bytes_and_closes_nothing() {
    let (server, mut received) = echo().await;
    let proxy = FaultProxy::before(server, 1).await.unwrap();
    let mut open = connected(&proxy).await;
    assert_eq!(echoed(&mut open, 1).await.unwrap(), 1);
    assert_eq!(in_time(received.recv()).await, Some(Some(1)));
    proxy.set(Fault::Blackhole);
    open.write_u8(2).await.unwrap();
    let mut late = connected(&proxy).await;

    late.write_u8(3).await.unwrap();
    assert!(is_silent(received.recv()).await && is_silent(open.read_u8()).await);
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
async fn one_way_blocks_one_direction_only() {
    let (server, mut received) = echo().await;
    let proxy = FaultProxy::before(server, 1).await.unwrap();
    let mut open = connected(&proxy).await;
    assert_eq!(echoed(&mut open, 1).await.unwrap(), 1);
    assert_eq!(in_time(received.recv()).await, Some(Some(1)));
    proxy.set(Fault::OneWay {
        blocked: Way::ToClient,
    });
    open.write_u8(2).await.unwrap();

    assert_eq!(in_time(received.recv()).await, Some(Some(2)));
    assert!(is_silent(open.read_u8()).await);
    proxy.heal();
    assert_eq!(in_time(open.read_u8()).await.unwrap(), 2);
    proxy.set(Fault::OneWay {
        blocked: Way::ToServer,
    });
    open.write_u8(3).await.unwrap();
    assert!(is_silent(received.recv()).await);

    proxy.heal();
    assert_eq!(in_time(open.read_u8()).await.unwrap(), 3);
}

#[tokio::test]
async fn a_half_open_connection_stays_silent() {
    let (server, mut received) = echo().await;
    let proxy = FaultProxy::before(server, 1).await.unwrap();
    let mut open = connected(&proxy).await;
    assert_eq!(echoed(&mut open, 1).await.unwrap(), 1);
    assert_eq!(in_time(received.recv()).await, Some(Some(1)));
    proxy.set(Fault::HalfOpen);
    assert_eq!(
        in_time(received.recv()).await,
        Some(None),
        "the server has lost its side"
    );

    open.write_u8(2).await.unwrap();
    proxy.heal();
    assert!(is_silent(open.read_u8()).await, "the client has not");
    assert_eq!(echoed(&mut connected(&proxy).await, 3).await.unwrap(), 3);
    drop(open);
    in_time(proxy.until_open(0)).await;
}

#[tokio::test]
async fn a_delay_applies_in_both_directions() {
    let (server, _received) = echo().await;
    let proxy = FaultProxy::before(server, 1).await.unwrap();
    let mut client = connected(&proxy).await;
    proxy.set(Fault::Delay(Duration::from_millis(60)));
    let asked = Instant::now();

    assert_eq!(echoed(&mut client, 1).await.unwrap(), 1);
    assert!(
        asked.elapsed() >= Duration::from_millis(120),
        "{:?}",
        asked.elapsed()
    );
}

#[tokio::test]
async fn a_lossy_network_resets_its_share_of_connections() {
    let (server, _received) = echo().await;
    let proxy = FaultProxy::before(server, 7).await.unwrap();
    let mut open = connected(&proxy).await;
    assert_eq!(echoed(&mut open, 1).await.unwrap(), 1);
    proxy.set(Fault::Lossy { percent: 0 });
    assert_eq!(echoed(&mut open, 2).await.unwrap(), 2);
    proxy.set(Fault::Lossy { percent: 50 });
    let mut lost = 0;

    for _ in 0..40 {
        lost += usize::from(echoed(&mut connected(&proxy).await, 1).await.is_err());
    }

    assert!((5..=35).contains(&lost), "{lost} of 40");
    proxy.set(Fault::Lossy { percent: 100 });
    assert!(echoed(&mut connected(&proxy).await, 1).await.is_err());
    assert!(echoed(&mut open, 3).await.is_err(), "open connections too");
}

#[tokio::test]
async fn a_stopped_server_can_come_back_behind_the_proxy() {
    let parked = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = parked.local_addr().unwrap();
    drop(parked);
    let proxy = FaultProxy::before(server, 1).await.unwrap();
    assert!(echoed(&mut connected(&proxy).await, 1).await.is_err());
    let listener = TcpListener::bind(server).await.unwrap();
    let mut client = connected(&proxy).await;

    client.write_u8(9).await.unwrap();
    let (mut accepted, _) = in_time(listener.accept()).await.unwrap();
    assert_eq!(in_time(accepted.read_u8()).await.unwrap(), 9);
}
