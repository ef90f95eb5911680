//! The nemesis: breaks one thing after another, by a schedule drawn from the seed.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};
use std::time::Duration;

use longhaul_domain::Clock as _;
use longhaul_store::SystemClock;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde::Serialize;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;

use crate::{
    cluster::{Cluster, Node},
    door::{Answer, Door, Request},
    server::Server,
    settings::FREEZE_MS,
};

/// Something that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Fault {
    /// kill -9 of a node, which is started again at once.
    Kill,
    /// SIGSTOP of a node for longer than its lease, then SIGCONT.
    Freeze { ms: u64 },
    /// kill -9 of the database server, which is down for so long.
    KillServer { ms: u64 },
    /// The node is declared dead while it lives. A frozen process keeps the lock of an embedded store, so nobody else
    /// can take over its tasks; this makes the zombies there.
    Disown,
}

/// A lot in the bag.
#[derive(Debug, Clone, Copy)]
enum Draw {
    Kill,
    Freeze,
    KillServer,
    Disown,
}

/// What was done.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Deed {
    /// Microseconds since 1970.
    pub(crate) at: i64,
    pub(crate) fault: Fault,
    /// The process that it happened to, if it was a node's.
    pub(crate) incarnation: Option<String>,
    /// When the server answered again.
    pub(crate) over: Option<i64>,
}

#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) kills: AtomicU32,
    pub(crate) freezes: AtomicU32,
    pub(crate) server_kills: AtomicU32,
    pub(crate) disowns: AtomicU32,
}

/// What it can break.
#[derive(Debug)]
pub(crate) struct Nemesis {
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) server: Option<Arc<Mutex<Server>>>,
    pub(crate) door: Door,
    pub(crate) tally: Arc<Tally>,
    random: StdRng,
    bag: Vec<Draw>,
    clock: SystemClock,
    deeds: Vec<Deed>,
}

impl Nemesis {
    pub(crate) fn new(seed: u64, cluster: &Cluster, server: Option<Arc<Mutex<Server>>>, door: Door) -> Self {
        Self {
            nodes: cluster.nodes.clone(),
            server,
            door,
            tally: Arc::default(),
            random: StdRng::seed_from_u64(seed ^ 0x6e65_6d65),
            bag: Vec::new(),
            clock: SystemClock::default(),
            deeds: Vec::new(),
        }
    }

    /// Breaks things until `ending`; then everything that is frozen is thawed, and the server is up.
    pub(crate) async fn run(mut self, mut ending: watch::Receiver<bool>) -> anyhow::Result<Vec<Deed>> {
        let mut thaws = JoinSet::new();
        loop {
            let rest = Duration::from_millis(self.random.random_range(700..2_600));
            tokio::select! {
                () = tokio::time::sleep(rest) => {}
                _ = ending.wait_for(|is_ending| *is_ending) => break,
            }
            let fault = self.next_fault();
            self.carry_out(fault, &mut thaws).await?;
        }
        thaws.join_all().await;
        Ok(self.deeds)
    }

    /// Faults are drawn from a bag that is filled again when it is empty: every kind has its turn before long.
    fn next_fault(&mut self) -> Fault {
        if self.bag.is_empty() {
            self.bag = match self.server.is_some() {
                true => [[Draw::Kill; 3].as_slice(), &[Draw::Freeze; 3], &[Draw::KillServer; 2]].concat(),
                false => [[Draw::Kill; 3].as_slice(), &[Draw::Freeze; 1], &[Draw::Disown; 2]].concat(),
            };
        }
        let draw = self.bag.swap_remove(self.random.random_range(0..self.bag.len()));
        match draw {
            Draw::Kill => Fault::Kill,
            Draw::Freeze => Fault::Freeze { ms: FREEZE_MS + self.random.random_range(0..2_000) },
            Draw::KillServer => Fault::KillServer { ms: self.random.random_range(0..1_500) },
            Draw::Disown => Fault::Disown,
        }
    }

    /// A node that can be broken: a frozen one is left alone until it is thawed.
    fn pick(&mut self) -> Option<Arc<Node>> {
        let free: Vec<&Arc<Node>> = self.nodes.iter().filter(|node| !node.is_frozen()).collect();
        let index = self.random.random_range(0..self.nodes.len());
        free.get(index % free.len().max(1)).map(|node| Arc::clone(node))
    }

    async fn carry_out(&mut self, fault: Fault, thaws: &mut JoinSet<()>) -> anyhow::Result<()> {
        let Some(node) = self.pick() else { return Ok(()) };
        let incarnation = node.incarnation();
        let others_run = self.nodes.iter().filter(|other| !other.is_frozen()).count() > 1;
        let is_done = match fault {
            Fault::Kill => node.kill(),
            Fault::Freeze { ms } if others_run || self.nodes.len() == 1 => {
                let is_frozen = node.freeze();
                thaws.spawn(thaw_later(node, self.server.clone(), Duration::from_millis(ms)));
                is_frozen
            }
            Fault::Freeze { .. } => false,
            Fault::KillServer { ms } => {
                self.note(fault, None);
                return self.kill_server(Duration::from_millis(ms)).await;
            }
            Fault::Disown => self.door.ask(Request::Disown).await == Answer::Done,
        };
        if is_done {
            self.note(fault, Some(incarnation));
        }
        Ok(())
    }

    async fn kill_server(&mut self, down: Duration) -> anyhow::Result<()> {
        let Some(server) = &self.server else { return Ok(()) };
        let mut server = server.lock().await;
        server.kill().await?;
        tokio::time::sleep(down).await;
        server.start_again().await?;
        if let Some(deed) = self.deeds.last_mut() {
            deed.over = Some(self.clock.now().as_micros());
        }
        Ok(())
    }

    fn note(&mut self, fault: Fault, incarnation: Option<String>) {
        let count = match fault {
            Fault::Kill => &self.tally.kills,
            Fault::Freeze { .. } => &self.tally.freezes,
            Fault::KillServer { .. } => &self.tally.server_kills,
            Fault::Disown => &self.tally.disowns,
        };
        count.fetch_add(1, Ordering::Relaxed);
        self.deeds.push(Deed { at: self.clock.now().as_micros(), fault, incarnation, over: None });
    }
}

/// Thaws the node when the others have had so long to notice. While the server is away they can do nothing.
async fn thaw_later(node: Arc<Node>, server: Option<Arc<Mutex<Server>>>, mut left: Duration) {
    const STEP: Duration = Duration::from_millis(100);
    while !left.is_zero() {
        tokio::time::sleep(STEP).await;
        if server.as_ref().is_none_or(|server| server.try_lock().is_ok()) {
            left = left.saturating_sub(STEP);
        }
    }
    node.thaw();
}
