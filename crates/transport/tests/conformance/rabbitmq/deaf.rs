//! A consumer that is open on both ends and gets nothing: a network that loses deliveries and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use libtest_mimic::Trial;
use longhaul_domain::contract::{Broker, broker::Published};
use longhaul_transport::rabbitmq::LaneKind;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{
    TcpListener, TcpStream,
    tcp::{OwnedReadHalf, OwnedWriteHalf},
};

use super::{
    fresh::{Namespace, server_url, until_down, until_up},
    wire::bell,
};
use crate::trial;

pub(crate) fn trials() -> Vec<Trial> {
    vec![trial(
        "rabbitmq::a_consumer_that_has_gone_deaf_is_rebuilt",
        a_consumer_that_has_gone_deaf_is_rebuilt,
    )]
}

/// What the network does with deliveries, and how many it has lost on one connection at most.
#[derive(Debug, Default)]
struct Deafness {
    is_on: AtomicBool,
    most_lost: AtomicU64,
}

/// A proxy before the server, as a URL.
async fn proxy(deafness: &Arc<Deafness>) -> String {
    let url = server_url();
    let (before, after) = url.rsplit_once('@').unwrap();
    let (server, virtual_host) = after.split_once('/').unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (server, deafness) = (server.to_owned(), Arc::clone(deafness));
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (from_server, mut to_server) =
                TcpStream::connect(&server).await.unwrap().into_split();
            let (mut from_client, to_client) = client.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
            let deafness = Arc::clone(&deafness);
            tokio::spawn(async move { carry(from_server, to_client, &deafness).await });
        }
    });
    format!("{before}@{address}/{virtual_host}")
}

/// Carries frames until either side ends. `basic.deliver` is a method frame that begins with 60 and 60; the contents
/// follow in frames of other types on the same channel.
async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    deafness: &Deafness,
) -> std::io::Result<()> {
    const METHOD: u8 = 1;
    const DELIVER: [u8; 4] = [0, 60, 0, 60];
    let (mut swallowed_channel, mut lost) = (None, 0);
    loop {
        let mut frame = vec![0; 7];
        from.read_exact(&mut frame).await?;
        let channel = u16::from_be_bytes([frame[1], frame[2]]);
        let size = u32::from_be_bytes([frame[3], frame[4], frame[5], frame[6]]) as usize;
        frame.resize(7 + size + 1, 0);
        from.read_exact(&mut frame[7..]).await?;
        let is_delivery = frame[0] == METHOD && frame[7..].starts_with(&DELIVER);
        if frame[0] == METHOD && swallowed_channel == Some(channel) {
            swallowed_channel = None;
        }
        if is_delivery && deafness.is_on.load(Ordering::SeqCst) {
            swallowed_channel = Some(channel);
            lost += 1;
            deafness.most_lost.fetch_max(lost, Ordering::SeqCst);
        }
        if swallowed_channel != Some(channel) {
            to.write_all(&frame).await?;
        }
    }
}

async fn a_consumer_that_has_gone_deaf_is_rebuilt() {
    let deafness = Arc::new(Deafness::default());
    let namespace = Namespace::at(&proxy(&deafness).await);
    let (deaf, other) = (
        namespace.hasty_broker(LaneKind::Classic).await,
        Namespace::named(&namespace.name),
    );
    let ringer = other.broker(LaneKind::Classic).await;
    ringer.declare(&["vip_short".to_owned()]).await.unwrap();
    let mut consumer = deaf.bells("vip_short");
    deafness.is_on.store(true, Ordering::SeqCst);
    let rung: Vec<_> = (0..10).map(|_| bell("vip_short")).collect();
    assert_eq!(ringer.ring(&rung).await, vec![Published::Confirmed; 10]);
    let noticed = async {
        // On a busy machine a link may break for another reason; the next one is as deaf.
        let why = loop {
            let why = until_down(&*deaf).await;
            if why.contains("deaf") {
                break why;
            }
            until_up(&*deaf).await;
        };
        deafness.is_on.store(false, Ordering::SeqCst);
        until_up(&*deaf).await;
        why
    };
    let both = async { futures::join!(noticed, consumer.next(4)) };
    let (why, heard) = tokio::time::timeout(Duration::from_secs(120), both)
        .await
        .unwrap();
    assert!(why.contains(&namespace.full("vip_short")), "{why}");
    assert_eq!(
        deafness.most_lost.load(Ordering::SeqCst),
        4,
        "as many as it asked for, and no more"
    );
    assert!(rung.iter().any(|rung| *rung == heard[0].bell));
}
