//! The nemesis: breaks one thing after another, by a schedule drawn from the seed.

use std::sync::{Arc, atomic::Ordering};
use std::time::Duration;

use longhaul_domain::Clock as _;
use longhaul_store::SystemClock;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;

use crate::{
    cluster::{Cluster, Node},
    door::{Answer, Door, Request},
    fault::{Blow, Deed, Deeds, Fault, Tally},
    links::{Links, Trouble},
    server::{Server, Service},
    settings::{FREEZE_MS, SERVER_FREEZE_MS},
};

/// What can be broken.
#[derive(Debug, Clone, Default)]
pub(crate) struct Targets {
    /// The database first, if there is one.
    pub(crate) servers: Vec<(Service, Arc<Mutex<Server>>)>,
    /// The network of each node, in a fleet.
    pub(crate) links: Vec<Arc<Links>>,
}

impl Targets {
    pub(crate) fn services(&self) -> Vec<Service> {
        self.servers.iter().map(|(service, _)| *service).collect()
    }

    fn server(&self, wanted: Service) -> Option<Arc<Mutex<Server>>> {
        self.servers
            .iter()
            .find(|(service, _)| *service == wanted)
            .map(|(_, server)| Arc::clone(server))
    }

    /// Whether there is a database and no other server.
    const fn is_database_alone(&self) -> bool {
        self.servers.len() == 1
    }
}

#[derive(Debug)]
pub(crate) struct Nemesis {
    nodes: Vec<Arc<Node>>,
    targets: Targets,
    door: Door,
    pub(crate) tally: Arc<Tally>,
    random: StdRng,
    bag: Vec<Fault>,
    /// Blows whose servers were still being mended when they were drawn.
    put_off: Vec<(Service, Blow, u64)>,
    clock: SystemClock,
    pub(crate) deeds: Deeds,
    /// Servers and networks that are broken now.
    mending: JoinSet<anyhow::Result<()>>,
    thaws: JoinSet<()>,
}

impl Nemesis {
    pub(crate) fn new(seed: u64, cluster: &Cluster, targets: Targets, door: Door) -> Self {
        Self {
            nodes: cluster.nodes.clone(),
            targets,
            door,
            tally: Arc::default(),
            random: StdRng::seed_from_u64(seed ^ 0x6e65_6d65),
            bag: Vec::new(),
            put_off: Vec::new(),
            clock: SystemClock::default(),
            deeds: Deeds::default(),
            mending: JoinSet::new(),
            thaws: JoinSet::new(),
        }
    }

    /// Breaks things until `ending`; then everything that is frozen is thawed, and all servers are up.
    pub(crate) async fn run(
        mut self,
        mut ending: watch::Receiver<bool>,
    ) -> anyhow::Result<Vec<Deed>> {
        loop {
            let rest = Duration::from_millis(self.random.random_range(700..2_600));
            tokio::select! {
                () = tokio::time::sleep(rest) => {}
                _ = ending.wait_for(|is_ending| *is_ending) => break,
            }
            let fault = self.next_fault();
            self.carry_out(fault).await;
            self.strike_what_was_put_off();
            while let Some(mended) = self.mended().await {
                mended??;
            }
        }
        while let Some(mended) = self.mending.join_next().await {
            mended??;
        }
        self.thaws.join_all().await;
        let deeds = std::mem::take(&mut *self.deeds.list());
        Ok(deeds)
    }

    /// A database that is all there is, is waited for; in a fleet, other things are broken meanwhile.
    async fn mended(&mut self) -> Option<Result<anyhow::Result<()>, tokio::task::JoinError>> {
        match self.targets.servers.len() {
            0 | 1 => self.mending.join_next().await,
            _ => self.mending.try_join_next(),
        }
    }

    /// Faults are drawn from a bag that is filled again when it is empty: every kind has its turn before long.
    fn next_fault(&mut self) -> Fault {
        if self.bag.is_empty() {
            self.bag = Fault::bag(&self.targets.services());
        }
        self.bag
            .swap_remove(self.random.random_range(0..self.bag.len()))
    }

    /// A node that can be broken: a frozen one is left alone until it is thawed.
    fn pick(&mut self) -> Option<(usize, Arc<Node>)> {
        let free: Vec<(usize, &Arc<Node>)> = self
            .nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| !node.is_frozen())
            .collect();
        let index = self.random.random_range(0..self.nodes.len());
        free.get(index % free.len().max(1))
            .map(|(number, node)| (*number, Arc::clone(node)))
    }

    async fn carry_out(&mut self, fault: Fault) {
        let (short, long) = (
            self.random.random_range(0..1_500),
            self.random.random_range(0..2_000),
        );
        let Some((number, node)) = self.pick() else {
            return;
        };
        let incarnation = Some(node.incarnation());
        match fault {
            Fault::Kill => {
                if node.kill() {
                    self.note(fault, 0, None, incarnation);
                }
            }
            Fault::Freeze => {
                // With a server, somebody must be left to notice.
                let others = self.nodes.iter().filter(|other| !other.is_frozen()).count() - 1;
                let ms = FREEZE_MS + long;
                if others >= self.nodes.len() / 2 && node.freeze() {
                    self.thaws.spawn(thaw_later(
                        node,
                        self.deeds.clone(),
                        Duration::from_millis(ms),
                    ));
                    self.note(fault, ms, None, incarnation);
                }
            }
            Fault::Disown => {
                if self.door.ask(Request::Disown).await == Answer::Done {
                    self.note(fault, 0, None, incarnation);
                }
            }
            Fault::Server(service, blow) => self.strike(service, blow, short),
            Fault::Partition(service) => {
                self.part(service, number, incarnation, FREEZE_MS / 2 + 2 * long)
            }
        }
    }

    /// A blow that met a broken server comes when it is mended, beside what is drawn: nothing that is drawn depends on how long
    /// that took.
    fn strike_what_was_put_off(&mut self) {
        let is_there = |service| {
            self.targets
                .server(service)
                .is_some_and(|server| server.try_lock().is_ok())
        };
        if let Some(place) = self
            .put_off
            .iter()
            .position(|(service, ..)| is_there(*service))
        {
            let (service, blow, ms) = self.put_off.remove(place);
            self.strike(service, blow, ms);
        }
    }

    /// A server that is broken already is left alone, until it is mended.
    fn strike(&mut self, service: Service, blow: Blow, ms: u64) {
        let Some(server) = self
            .targets
            .server(service)
            .and_then(|server| server.try_lock_owned().ok())
        else {
            if !self
                .put_off
                .iter()
                .any(|(of, kind, _)| (*of, *kind) == (service, blow))
            {
                self.put_off.push((service, blow, ms));
            }
            return;
        };
        // A freeze that is over before anybody notices is none. In a fleet it is shorter, because it hides what else happens.
        let ms = match blow {
            Blow::Freeze if self.targets.is_database_alone() => SERVER_FREEZE_MS + ms,
            Blow::Freeze => 2_500 + ms,
            Blow::Kill | Blow::Wipe | Blow::Empty => ms,
        };
        let number = self.note(Fault::Server(service, blow), ms, None, None);
        let deeds = self.deeds.clone();
        self.mending.spawn(async move {
            let mut server = server;
            let down = Duration::from_millis(ms);
            match blow {
                Blow::Empty => server.empty().await?,
                Blow::Freeze => {
                    server.freeze()?;
                    tokio::time::sleep(down).await;
                    server.thaw().await?;
                }
                Blow::Kill | Blow::Wipe => {
                    server.kill().await?;
                    if blow == Blow::Wipe {
                        server.wipe().await?;
                    }
                    tokio::time::sleep(down).await;
                    server.start_again().await?;
                }
            }
            deeds.is_over(number);
            Ok(())
        });
    }

    /// Makes trouble between a node and a server, and heals it after a while.
    fn part(&mut self, service: Service, node: usize, incarnation: Option<String>, ms: u64) {
        let trouble = Trouble::draw(&mut self.random);
        let Some(links) = self.targets.links.get(node).map(Arc::clone) else {
            return;
        };
        if !links.trouble(service, trouble) {
            return;
        }
        let number = self.note(Fault::Partition(service), ms, Some(trouble), incarnation);
        let deeds = self.deeds.clone();
        self.mending.spawn(async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            links.heal(service);
            deeds.is_over(number);
            Ok(())
        });
    }

    /// Writes a deed down, and answers with its number.
    fn note(
        &mut self,
        fault: Fault,
        ms: u64,
        trouble: Option<Trouble>,
        incarnation: Option<String>,
    ) -> usize {
        let count = match fault {
            Fault::Kill => &self.tally.kills,
            Fault::Freeze | Fault::Disown => &self.tally.freezes,
            Fault::Server(..) => &self.tally.servers,
            Fault::Partition(_) => &self.tally.partitions,
        };
        count.fetch_add(1, Ordering::Relaxed);
        let mut deeds = self.deeds.list();
        deeds.push(Deed {
            at: self.clock.now().as_micros(),
            fault,
            ms,
            trouble,
            incarnation,
            over: None,
        });
        deeds.len() - 1
    }
}

/// Thaws the node when the others have had so long to notice. While the database is away they can do nothing.
async fn thaw_later(node: Arc<Node>, deeds: Deeds, mut left: Duration) {
    const STEP: Duration = Duration::from_millis(100);
    while !left.is_zero() {
        tokio::time::sleep(STEP).await;
        if !deeds.is_database_away() {
            left = left.saturating_sub(STEP);
        }
    }
    node.thaw();
}
