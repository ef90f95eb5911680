//! Maintains the link to the server: builds it, watches it, and builds another when it breaks.

use std::{collections::BTreeSet, convert::Infallible, future::pending, sync::Arc, time::Duration};

use futures::StreamExt;
use lapin::Event;
use longhaul_domain::contract::broker::{BrokerError, BrokerState, Signal};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::{broadcast, mpsc, watch},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    address::Address,
    control,
    link::{self, Link},
    options::RabbitOptions,
    topology::{self, DeclareError, Names, reason_of},
    traffic::TrafficCounts,
    watchdog,
};
use crate::random;

/// How long it may take to build a link, with all queues, on a busy server.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest pause before the first new attempt. Often only one connection breaks.
const FIRST_PAUSE_MS: u64 = 250;
/// The longest pause before each further attempt. Nodes return spread over this time.
const PAUSE_MS: u64 = 3_000;
/// How long a server that did not answer may take to send its first bytes. Until it does, no
/// further link is tried.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// What the broker, its consumers and its background tasks share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) address: Address,
    pub(super) options: RabbitOptions,
    pub(super) names: Names,
    /// No time limit for the server is shorter than this.
    min_timeout: Duration,
    /// Identifies this process, so that it ignores its own broadcasts.
    pub(super) origin: String,
    pub(super) traffic: TrafficCounts,
    pub(super) closed: CancellationToken,
    pub(super) outbound: mpsc::Sender<control::Outbound>,
    /// Taken out at the close, so that listeners end. Never held across an await.
    pub(super) signals: Mutex<Option<broadcast::Sender<Signal>>>,
    status: watch::Sender<LinkStatus>,
    /// Task queues that were declared or consumed. Every new link declares them again.
    /// Never held across an await: a new link declares a copy.
    known_queues: Mutex<BTreeSet<String>>,
}

#[derive(Debug, Clone)]
enum LinkStatus {
    /// The first attempt is under way.
    Connecting,
    Up(Arc<Link>),
    /// The server takes no messages, but delivers those that it has.
    Blocked(Arc<Link>, String),
    Down(BrokerError),
}

impl LinkStatus {
    fn closed() -> Self {
        Self::Down(BrokerError::Unavailable("it was closed".to_owned()))
    }

    fn state(&self) -> BrokerState {
        match self {
            Self::Up(_) => BrokerState::Up,
            Self::Connecting => BrokerState::Down("it is being connected".to_owned()),
            Self::Blocked(_, why) => BrokerState::Down(format!("it takes no messages: {why}")),
            Self::Down(BrokerError::Unavailable(why) | BrokerError::Topology(why)) => {
                BrokerState::Down(why.clone())
            }
        }
    }

    /// Why nothing can be published over an earlier link.
    fn why_down(&self) -> String {
        match self.state() {
            BrokerState::Up => "it has been connected anew".to_owned(),
            BrokerState::Down(why) => why,
        }
    }
}

impl Shared {
    pub(super) fn new(
        address: Address,
        options: RabbitOptions,
        min_timeout: Duration,
        outbound: mpsc::Sender<control::Outbound>,
    ) -> Self {
        Self {
            address,
            names: Names::new(&options),
            options,
            min_timeout,
            origin: random::uuid().simple().to_string(),
            traffic: TrafficCounts::default(),
            closed: CancellationToken::new(),
            outbound,
            signals: Mutex::new(Some(broadcast::Sender::new(control::SIGNAL_BUFFER))),
            status: watch::Sender::new(LinkStatus::Connecting),
            known_queues: Mutex::default(),
        }
    }

    /// The time limit, or the configured minimum if that is longer.
    pub(super) fn at_least(&self, limit: Duration) -> Duration {
        limit.max(self.min_timeout)
    }

    pub(super) fn state(&self) -> BrokerState {
        self.status.borrow().state()
    }

    pub(super) async fn state_after(&self, known: &BrokerState) -> BrokerState {
        let mut status = self.status.subscribe();
        match status.wait_for(|status| status.state() != *known).await {
            Ok(status) => status.state(),
            Err(_) => self.state(),
        }
    }

    /// The link, if messages can be published over it now; otherwise the reason.
    pub(super) fn publishing_link(&self) -> Result<Arc<Link>, String> {
        let status = self.status.borrow();
        match &*status {
            LinkStatus::Up(link) => Ok(Arc::clone(link)),
            LinkStatus::Connecting | LinkStatus::Blocked(..) | LinkStatus::Down(_) => {
                Err(status.why_down())
            }
        }
    }

    /// Waits until nothing can be published over this link any more. Returns the reason.
    pub(super) async fn unpublishable(&self, link: &Link) -> String {
        let mut status = self.status.subscribe();
        let is_other =
            |now: &LinkStatus| !matches!(now, LinkStatus::Up(up) if up.number == link.number);
        match status.wait_for(is_other).await {
            Ok(status) => status.why_down(),
            Err(_) => self.status.borrow().why_down(),
        }
    }

    /// Waits for a link that can be consumed from.
    pub(super) async fn consuming_link(&self) -> Arc<Link> {
        let mut status = self.status.subscribe();
        loop {
            match &*status.borrow_and_update() {
                LinkStatus::Up(link) | LinkStatus::Blocked(link, _) => return Arc::clone(link),
                LinkStatus::Connecting | LinkStatus::Down(_) => {}
            }

            if status.changed().await.is_err() {
                pending().await
            }
        }
    }

    /// The link for queries and declarations. Waits only for the first attempt to connect.
    pub(super) async fn declaring_link(&self) -> Result<Arc<Link>, BrokerError> {
        let mut status = self.status.subscribe();
        let attempted = status.wait_for(|now| !matches!(now, LinkStatus::Connecting));
        let Ok(status) = attempted.await else {
            return Err(BrokerError::Unavailable("it was closed".to_owned()));
        };

        match &*status {
            LinkStatus::Up(link) | LinkStatus::Blocked(link, _) => Ok(Arc::clone(link)),
            LinkStatus::Down(error) => Err(error.clone()),
            LinkStatus::Connecting => {
                Err(BrokerError::Unavailable("it is being connected".to_owned()))
            }
        }
    }

    /// Waits until the broker is closed and its link is gone.
    pub(super) async fn closed_down(&self) {
        let mut status = self.status.subscribe();
        let is_closed =
            |now: &LinkStatus| self.closed.is_cancelled() && matches!(now, LinkStatus::Down(_));
        // The wait fails only without a sender, and `self` has the sender.
        let _ = status.wait_for(is_closed).await;
    }

    pub(super) fn remember_queue(&self, queue: &str) {
        self.known_queues.lock().insert(queue.to_owned());
    }

    /// Declares everything that is common, and the hint queues of these task queues.
    pub(super) async fn declare(&self, link: &Link, queues: &[String]) -> Result<(), BrokerError> {
        queues.iter().for_each(|queue| self.remember_queue(queue));

        let kind = self.options.queue_kind;
        let channel = link.channel().await?;
        topology::declare_base(&channel, &self.names, kind).await?;
        for queue in queues {
            topology::declare_hint_queue(&channel, &self.names, kind, queue).await?;
            link.note_declared(queue);
        }

        Ok(())
    }

    /// Declares everything that was declared over earlier links. A queue that differs, or that is
    /// down with its server, fails only its own consumers.
    async fn declare_all(&self, link: &Link) -> Result<(), BrokerError> {
        self.declare(link, &[]).await?;

        let kind = self.options.queue_kind;
        let queues: Vec<_> = self.known_queues.lock().iter().cloned().collect();
        let mut channel = link.channel().await?;
        for queue in queues {
            match topology::declare_hint_queue(&channel, &self.names, kind, &queue).await {
                Ok(()) => link.note_declared(&queue),
                Err(DeclareError::Differs(why) | DeclareError::Absent(why)) => {
                    tracing::error!(queue, "broker: no hints for this queue: {why}");
                    // The server has closed the channel.
                    channel = link.channel().await?;
                }
                Err(error @ DeclareError::Unavailable(_)) => return Err(error.into()),
            }
        }

        Ok(())
    }

    fn set_status(&self, status: LinkStatus) {
        self.status.send_replace(status);
    }
}

/// Maintains a link until the broker is closed.
pub(super) async fn maintain(shared: Arc<Shared>) {
    let closed = shared.closed.clone();
    closed
        .run_until_cancelled(reconnect_for_ever(&shared))
        .await;

    let last = shared.status.borrow().clone();
    match last {
        LinkStatus::Up(link) | LinkStatus::Blocked(link, _) => link.close().await,
        LinkStatus::Connecting | LinkStatus::Down(_) => {}
    }

    shared.set_status(LinkStatus::closed());
}

async fn reconnect_for_ever(shared: &Arc<Shared>) -> Infallible {
    let mut number = 0;
    let mut pause_ms = FIRST_PAUSE_MS;
    loop {
        number += 1;
        let error = match open(shared, number).await {
            Ok(link) => {
                tracing::info!(broker = %shared.address, "broker connected");
                pause_ms = FIRST_PAUSE_MS;
                shared.set_status(LinkStatus::Up(Arc::clone(&link)));
                let why = follow(shared, &link).await;

                // The orderly close takes time that the next link need not wait for.
                tokio::spawn(async move { link.close().await });
                BrokerError::Unavailable(why)
            }
            Err(error) => error,
        };

        let before = shared.state();
        shared.set_status(LinkStatus::Down(error.clone()));
        if shared.state() != before {
            tracing::warn!(broker = %shared.address, %error, "broker unavailable; reconnecting");
        }

        sleep(Duration::from_millis(random::below(pause_ms))).await;
        pause_ms = PAUSE_MS;
    }
}

/// Builds a link with everything on it.
async fn open(shared: &Arc<Shared>, number: u64) -> Result<Arc<Link>, BrokerError> {
    if let Ok(opened) = timeout(OPEN_TIMEOUT, build(shared, number)).await {
        return opened;
    }

    // Every attempt to connect to a server that accepts and is silent blocks a thread. So the
    // server is only probed until it answers.
    while !is_responsive(&shared.address).await {
        let silent = "it accepts connections and does not answer".to_owned();
        shared.set_status(LinkStatus::Down(BrokerError::Unavailable(silent)));
        sleep(Duration::from_millis(random::below(PAUSE_MS))).await;
    }

    let seconds = OPEN_TIMEOUT.as_secs();
    let why = format!("it could not be set up within {seconds} s");
    Err(BrokerError::Unavailable(why))
}

async fn build(shared: &Arc<Shared>, number: u64) -> Result<Arc<Link>, BrokerError> {
    let query_timeout = shared.at_least(link::QUERY_TIMEOUT);
    let connected = Link::connect(&shared.address, number, query_timeout).await;
    let link = Arc::new(connected.map_err(BrokerError::Unavailable)?);

    // Everything is declared before the link counts as up.
    shared.declare_all(&link).await?;
    let receiving = control::receive_signals(shared, &link).await;
    receiving.map_err(|error| BrokerError::Unavailable(reason_of(&error)))?;

    Ok(link)
}

/// Whether the server sends anything, or refuses the connection: then another attempt is worth it,
/// or cheap.
async fn is_responsive(address: &Address) -> bool {
    if address.uri().scheme == lapin::uri::AMQPScheme::AMQPS {
        return true;
    }

    let probe = async {
        let mut stream = TcpStream::connect(address.host_and_port()).await?;
        stream.write_all(b"AMQP\x00\x00\x09\x01").await?;
        stream.read(&mut [0; 8]).await
    };

    timeout(PROBE_TIMEOUT, probe).await.is_ok()
}

/// Follows the events of a link until it is broken. Returns the reason.
async fn follow(shared: &Arc<Shared>, link: &Arc<Link>) -> String {
    // The watchdog ends with the link.
    tokio::spawn(watchdog::watch(Arc::clone(shared), Arc::clone(link)));
    let mut publishing = Box::pin(link.publishing.events_listener());
    let mut consuming = Box::pin(link.consuming.events_listener());

    loop {
        // Whether messages can be published depends on the publishing connection alone.
        let event = tokio::select! {
            why = link.failed() => return why,
            event = publishing.next() => event,
            event = consuming.next() => event.filter(|event| matches!(event, Event::Error(_))),
        };

        match event {
            Some(Event::Error(error)) if !link.is_connected() => link.fail(reason_of(&error)),
            Some(Event::ConnectionBlocked(why)) => {
                tracing::warn!(
                    broker = %shared.address,
                    why,
                    "broker takes no messages; waiting until it does"
                );
                shared.set_status(LinkStatus::Blocked(Arc::clone(link), why));
            }
            Some(Event::ConnectionUnblocked) => {
                tracing::info!(broker = %shared.address, "broker takes messages again");
                shared.set_status(LinkStatus::Up(Arc::clone(link)));
            }
            // The error of a single channel is handled where the channel is used.
            _ => {}
        }
    }
}
