//! Keeps a link to the server, for ever: builds it, watches it, and builds another when it is broken.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt;
use lapin::Event;
use longhaul_domain::contract::broker::{BrokerError, BrokerState, Signal};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{broadcast, mpsc, watch},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    address::Address,
    control,
    link::{self, Link, lock},
    options::RabbitOptions,
    topology::{self, Failure, Names},
    traffic::TrafficBook,
    watchdog,
};
use crate::random;

/// For building a link, with all queues, on a busy server.
const OPEN_TIME: Duration = Duration::from_secs(10);
/// Milliseconds to rest at most after a link broke, before the first new try: a broken connection is often alone.
const FIRST_REST_MS: u64 = 250;
/// Milliseconds to rest at most before each further try. Nodes come back spread over this time, not all at once.
const REST_MS: u64 = 3_000;
/// A server that did not answer is asked for its first bytes, for so long, before another link is tried.
const KNOCK_TIME: Duration = Duration::from_secs(2);

/// What the broker, its consumers and its duties share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) address: Address,
    pub(super) options: RabbitOptions,
    pub(super) names: Names,
    /// No time that the server is given for an answer is shorter.
    patience: Duration,
    /// Who we are to the other processes, so that our own messages are not heard twice.
    pub(super) origin: String,
    pub(super) traffic: TrafficBook,
    pub(super) closed: CancellationToken,
    pub(super) outbound: mpsc::Sender<control::Outbound>,
    pub(super) signals: Mutex<Option<broadcast::Sender<Signal>>>,
    standing: watch::Sender<Standing>,
    /// Queues of tasks that somebody has declared or consumes; every new link makes them again.
    wanted: Mutex<BTreeSet<String>>,
}

/// How things stand with the server.
#[derive(Debug, Clone)]
pub(super) enum Standing {
    /// The first try is under way.
    Connecting,
    Up(Arc<Link>),
    /// The server takes no messages, and hands out those that it has.
    Blocked(Arc<Link>, String),
    Down(BrokerError),
}

impl Standing {
    fn state(&self) -> BrokerState {
        match self {
            Self::Connecting => BrokerState::Down("it is being connected".to_owned()),
            Self::Up(_) => BrokerState::Up,
            Self::Blocked(_, why) => BrokerState::Down(blocked(why)),
            Self::Down(BrokerError::Unavailable(why)) => BrokerState::Down(why.clone()),
            Self::Down(BrokerError::Topology(why)) => BrokerState::Down(why.clone()),
        }
    }
}

fn blocked(why: &str) -> String {
    format!("it takes no messages: {why}")
}

impl Shared {
    pub(super) fn new(
        address: Address,
        options: RabbitOptions,
        patience: Duration,
        outbound: mpsc::Sender<control::Outbound>,
    ) -> Self {
        Self {
            address,
            names: Names::new(&options),
            options,
            patience,
            origin: random::uuid().simple().to_string(),
            traffic: TrafficBook::default(),
            closed: CancellationToken::new(),
            outbound,
            signals: Mutex::new(Some(broadcast::Sender::new(control::MOST_SIGNALS))),
            standing: watch::Sender::new(Standing::Connecting),
            wanted: Mutex::default(),
        }
    }

    /// How long an answer is waited for that is usually given this time.
    pub(super) fn patient(&self, time: Duration) -> Duration {
        time.max(self.patience)
    }

    pub(super) fn state(&self) -> BrokerState {
        self.standing.borrow().state()
    }

    pub(super) async fn state_after(&self, known: &BrokerState) -> BrokerState {
        let mut standing = self.standing.subscribe();
        match standing
            .wait_for(|standing| standing.state() != *known)
            .await
        {
            Ok(standing) => standing.state(),
            Err(_) => self.state(),
        }
    }

    /// The link, if messages can be published over it now, or why not.
    pub(super) fn publishing_link(&self) -> Result<Arc<Link>, String> {
        match &*self.standing.borrow() {
            Standing::Up(link) => Ok(Arc::clone(link)),
            down @ (Standing::Connecting | Standing::Blocked(..) | Standing::Down(_)) => {
                Err(why_down(&down.state()))
            }
        }
    }

    /// Waits until nothing can be published over this link any more.
    pub(super) async fn unpublishable(&self, link: &Link) -> String {
        let mut standing = self.standing.subscribe();
        let is_other =
            |now: &Standing| !matches!(now, Standing::Up(up) if up.number == link.number);
        match standing.wait_for(is_other).await {
            Ok(now) => why_down(&now.state()),
            Err(_) => why_down(&self.state()),
        }
    }

    /// Waits for a link that can be consumed from.
    pub(super) async fn consuming_link(&self) -> Arc<Link> {
        let mut standing = self.standing.subscribe();
        loop {
            match &*standing.borrow_and_update() {
                Standing::Up(link) | Standing::Blocked(link, _) => return Arc::clone(link),
                Standing::Connecting | Standing::Down(_) => {}
            }
            if standing.changed().await.is_err() {
                std::future::pending().await
            }
        }
    }

    /// The link for questions and declarations. Waits while the first try is under way, and for nothing else.
    pub(super) async fn asking_link(&self) -> Result<Arc<Link>, BrokerError> {
        let mut standing = self.standing.subscribe();
        let Ok(now) = standing
            .wait_for(|now| !matches!(now, Standing::Connecting))
            .await
        else {
            return Err(BrokerError::Unavailable("it was closed".to_owned()));
        };
        match &*now {
            Standing::Up(link) | Standing::Blocked(link, _) => Ok(Arc::clone(link)),
            Standing::Down(error) => Err(error.clone()),
            Standing::Connecting => {
                Err(BrokerError::Unavailable("it is being connected".to_owned()))
            }
        }
    }

    /// Waits until there is no link, and none will be made: the broker was closed.
    pub(super) async fn gone(&self) {
        let mut standing = self.standing.subscribe();
        let _ = standing
            .wait_for(|now| self.closed.is_cancelled() && matches!(now, Standing::Down(_)))
            .await;
    }

    pub(super) fn want(&self, queue: &str) {
        lock(&self.wanted).insert(queue.to_owned());
    }

    /// Makes everything, for these queues of tasks among others.
    pub(super) async fn declare(&self, link: &Link, queues: &[String]) -> Result<(), BrokerError> {
        queues.iter().for_each(|queue| self.want(queue));
        let channel = link.channel().await?;
        topology::declare_base(&channel, &self.names, self.options.lanes).await?;
        for queue in queues {
            topology::declare_lane(&channel, &self.names, self.options.lanes, queue).await?;
            link.note_declared(queue);
        }
        Ok(())
    }

    /// Makes everything that was ever wanted. A lane that differs, or that is away
    /// with a server of a cluster, harms nobody but those who use it.
    async fn declare_all(&self, link: &Link) -> Result<(), BrokerError> {
        self.declare(link, &[]).await?;
        let wanted: Vec<_> = lock(&self.wanted).iter().cloned().collect();
        let mut channel = link.channel().await?;
        for queue in wanted {
            match topology::declare_lane(&channel, &self.names, self.options.lanes, &queue).await {
                Ok(()) => link.note_declared(&queue),
                Err(Failure::Differs(why) | Failure::Absent(why)) => {
                    tracing::error!(queue, "no bells: {why}");
                    channel = link.channel().await?;
                }
                Err(error @ Failure::Unavailable(_)) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn set(&self, standing: Standing) {
        self.standing.send_replace(standing);
    }
}

fn why_down(state: &BrokerState) -> String {
    match state {
        BrokerState::Up => "it has been connected anew".to_owned(),
        BrokerState::Down(why) => why.clone(),
    }
}

/// Keeps a link until the broker is closed.
pub(super) async fn keep(shared: Arc<Shared>) {
    let closed = shared.closed.clone();
    let kept = closed.run_until_cancelled(keep_for_ever(&shared)).await;
    debug_assert!(kept.is_none(), "it ends when it is told to");
    let last = shared.standing.borrow().clone();
    if let Standing::Up(link) | Standing::Blocked(link, _) = last {
        link.close().await;
    }
    shared.set(Standing::Down(BrokerError::Unavailable(
        "it was closed".to_owned(),
    )));
}

async fn keep_for_ever(shared: &Arc<Shared>) -> std::convert::Infallible {
    let mut number = 0;
    let mut rest_ms = FIRST_REST_MS;
    loop {
        number += 1;
        let opened = open(shared, number).await;
        let error = match opened {
            Ok(link) => {
                tracing::info!(broker = %shared.address, "the broker is connected");
                shared.set(Standing::Up(Arc::clone(&link)));
                rest_ms = FIRST_REST_MS;
                let why = attend(shared, &link).await;
                tokio::spawn(async move { link.close().await });
                BrokerError::Unavailable(why)
            }
            Err(error) => error,
        };
        let before = shared.state();
        shared.set(Standing::Down(error.clone()));
        if shared.state() != before {
            tracing::warn!(broker = %shared.address, %error, "trying again");
        }
        tokio::time::sleep(Duration::from_millis(random::below(rest_ms))).await;
        rest_ms = REST_MS;
    }
}

/// Builds a link with everything on it.
async fn open(shared: &Arc<Shared>, number: u64) -> Result<Arc<Link>, BrokerError> {
    let unavailable = BrokerError::Unavailable;
    let build = async {
        let answer_time = shared.patient(link::ANSWER_TIME);
        let link = Arc::new(
            Link::connect(&shared.address, number, answer_time)
                .await
                .map_err(unavailable)?,
        );
        shared.declare_all(&link).await?;
        control::listen(shared, &link)
            .await
            .map_err(|error| unavailable(topology::said(&error)))?;
        Ok(link)
    };
    match timeout(OPEN_TIME, build).await {
        Ok(opened) => opened,
        Err(_) => {
            // A server that accepts and is silent holds a thread of each try; so it is only knocked at until it speaks.
            while !speaks(&shared.address).await {
                shared.set(Standing::Down(unavailable(
                    "it accepts connections and does not answer".to_owned(),
                )));
                tokio::time::sleep(Duration::from_millis(random::below(REST_MS))).await;
            }
            Err(unavailable(format!(
                "it could not be set up within {} s",
                OPEN_TIME.as_secs()
            )))
        }
    }
}

/// Whether the server says anything, or cannot be reached at all: then it is worth a try, or cheap.
async fn speaks(address: &Address) -> bool {
    if address.uri().scheme == lapin::uri::AMQPScheme::AMQPS {
        return true;
    }
    let knock = async {
        let mut stream = TcpStream::connect(address.host_and_port()).await?;
        stream.write_all(b"AMQP\x00\x00\x09\x01").await?;
        stream.read(&mut [0; 8]).await
    };
    timeout(KNOCK_TIME, knock).await.is_ok()
}

/// Stands by a link until it is broken, and says why.
async fn attend(shared: &Arc<Shared>, link: &Arc<Link>) -> String {
    tokio::spawn(watchdog::watch(Arc::clone(shared), Arc::clone(link)));
    let mut publishing = Box::pin(link.publishing.events_listener());
    let mut consuming = Box::pin(link.consuming.events_listener());
    loop {
        let event = tokio::select! {
            why = link.gone() => return why,
            event = publishing.next() => event,
            event = consuming.next() => event.filter(|event| matches!(event, Event::Error(_))),
        };
        if let Some(Event::Error(error)) = &event {
            // Errors of single channels come here, too; who uses the channel decides on those.
            if !link.is_connected() {
                link.fail(topology::said(error));
            }
        } else if let Some(Event::ConnectionBlocked(why)) = event {
            tracing::warn!(broker = %shared.address, why, "the broker takes no messages");
            shared.set(Standing::Blocked(Arc::clone(link), why));
        } else if matches!(event, Some(Event::ConnectionUnblocked)) {
            tracing::info!(broker = %shared.address, "the broker takes messages again");
            shared.set(Standing::Up(Arc::clone(link)));
        }
    }
}
