//! A consumer that is open on both ends and receives nothing: the network drops deliveries and
//! nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use libtest_mimic::Trial;
use longhaul_domain::contract::{Broker, broker::Published};
use longhaul_transport::rabbitmq::QueueKind;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{
    TcpListener, TcpStream,
    tcp::{OwnedReadHalf, OwnedWriteHalf},
};

use super::{
    fresh::{Namespace, server_url, until_down, until_up},
    wire::hint,
};
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial(
        "rabbitmq::a_stalled_consumer_is_rebuilt",
        a_stalled_consumer_is_rebuilt,
    )]
}

/// Whether the network drops deliveries, and the most that it has dropped on one connection.
#[derive(Debug, Default)]
struct DeliveryLoss {
    is_on: AtomicBool,
    most_dropped: AtomicU64,
}

/// The URL of a proxy in front of the server.
async fn proxy(loss: &Arc<DeliveryLoss>) -> String {
    let url = server_url();
    let (before, after) = url.rsplit_once('@').unwrap();
    let (server, virtual_host) = after.split_once('/').unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = server.to_owned();
    let loss = Arc::clone(loss);

    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (from_server, mut to_server) =
                TcpStream::connect(&server).await.unwrap().into_split();
            let (mut from_client, to_client) = client.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            let loss = Arc::clone(&loss);
            tokio::spawn(async move { carry(from_server, to_client, &loss).await });
        }
    });

    format!("{before}@{address}/{virtual_host}")
}

/// Carries frames until either side ends. `basic.deliver` is a method frame that starts with the
/// numbers 60 and 60. Its contents follow in frames of other types on the same channel.
async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    loss: &DeliveryLoss,
) -> std::io::Result<()> {
    const METHOD: u8 = 1;
    const DELIVER: [u8; 4] = [0, 60, 0, 60];

    let mut dropped_channel = None;
    let mut dropped = 0;
    loop {
        let mut frame = vec![0; 7];
        from.read_exact(&mut frame).await?;
        let channel = u16::from_be_bytes([frame[1], frame[2]]);
        let size = u32::from_be_bytes([frame[3], frame[4], frame[5], frame[6]]) as usize;
        frame.resize(7 + size + 1, 0);
        from.read_exact(&mut frame[7..]).await?;
        let is_delivery = frame[0] == METHOD && frame[7..].starts_with(&DELIVER);

        if frame[0] == METHOD && dropped_channel == Some(channel) {
            dropped_channel = None;
        }

        if is_delivery && loss.is_on.load(Ordering::SeqCst) {
            dropped_channel = Some(channel);
            dropped += 1;
            loss.most_dropped.fetch_max(dropped, Ordering::SeqCst);
        }

        if dropped_channel != Some(channel) {
            to.write_all(&frame).await?;
        }
    }
}

async fn a_stalled_consumer_is_rebuilt() {
    let loss = Arc::new(DeliveryLoss::default());
    let namespace = Namespace::at(&proxy(&loss).await);
    let stalled = namespace
        .broker_with_node_timeouts(QueueKind::Classic)
        .await;
    let other = Namespace::named(&namespace.name);
    let dispatcher = other.broker(QueueKind::Classic).await;

    dispatcher.declare(&["vip_short".to_owned()]).await.unwrap();
    let mut consumer = stalled.hints("vip_short");
    loss.is_on.store(true, Ordering::SeqCst);
    let published: Vec<_> = (0..10).map(|_| hint("vip_short")).collect();
    assert_eq!(
        dispatcher.publish_hints(&published).await,
        vec![Published::Confirmed; 10]
    );

    let noticed = async {
        // On a busy machine a link may break for another reason. The next one stalls as well.
        let why = loop {
            let why = until_down(&*stalled).await;
            if why.contains("stalled") {
                break why;
            }
            until_up(&*stalled).await;
        };

        loss.is_on.store(false, Ordering::SeqCst);
        until_up(&*stalled).await;
        why
    };

    let both = async { futures::join!(noticed, consumer.next(4)) };
    let (why, received) = tokio::time::timeout(Duration::from_secs(120), both)
        .await
        .unwrap();
    assert!(why.contains(&namespace.full("vip_short")), "{why}");
    assert_eq!(
        loss.most_dropped.load(Ordering::SeqCst),
        4,
        "as many as the consumer requested, and no more"
    );

    assert!(
        published
            .iter()
            .any(|published| *published == received[0].hint)
    );
}
