//! The nemesis: injects one fault after another, by a schedule drawn from the seed.

use std::sync::{Arc, atomic::Ordering};
use std::time::Duration;

use longhaul_domain::Clock as _;
use longhaul_store::SystemClock;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;

use crate::{
    cluster::{Cluster, Node},
    fault::{Fault, FaultCounts, FaultLog, FaultRecord, ServerFault},
    gateway::{Answer, Gateway, Request},
    links::{Links, NetworkFault},
    server::{Server, Service},
    settings::{FREEZE_MS, SERVER_FREEZE_MS},
};

/// What the nemesis can break.
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
        let mut servers = self.servers.iter();
        let (_, server) = servers.find(|(service, _)| *service == wanted)?;
        Some(Arc::clone(server))
    }

    /// Whether the database is the only server.
    const fn is_database_alone(&self) -> bool {
        self.servers.len() == 1
    }
}

#[derive(Debug)]
pub(crate) struct Nemesis {
    nodes: Vec<Arc<Node>>,
    targets: Targets,
    gateway: Gateway,
    pub(crate) fault_counts: Arc<FaultCounts>,
    random: StdRng,
    /// The faults of this round that are left.
    round: Vec<Fault>,
    /// Faults whose servers were still broken when they were drawn.
    postponed: Vec<(Service, ServerFault, u64)>,
    clock: SystemClock,
    pub(crate) fault_log: FaultLog,
    /// Repairs of servers and links that are broken now.
    repairs: JoinSet<anyhow::Result<()>>,
    thaws: JoinSet<()>,
}

impl Nemesis {
    pub(crate) fn new(seed: u64, cluster: &Cluster, targets: Targets, gateway: Gateway) -> Self {
        Self {
            nodes: cluster.nodes.clone(),
            targets,
            gateway,
            fault_counts: Arc::default(),
            random: StdRng::seed_from_u64(seed ^ 0x6e65_6d65),
            round: Vec::new(),
            postponed: Vec::new(),
            clock: SystemClock::default(),
            fault_log: FaultLog::default(),
            repairs: JoinSet::new(),
            thaws: JoinSet::new(),
        }
    }

    /// Injects faults until `ending` is set. Then it waits until all nodes are thawed and all
    /// servers are up.
    pub(crate) async fn run(
        mut self,
        mut ending: watch::Receiver<bool>,
    ) -> anyhow::Result<Vec<FaultRecord>> {
        loop {
            let rest = Duration::from_millis(self.random.random_range(700..2_600));
            // Only the rest is cut short: a fault that has begun is also repaired.
            tokio::select! {
                () = tokio::time::sleep(rest) => {}
                _ = ending.wait_for(|is_ending| *is_ending) => break,
            }

            let fault = self.next_fault();
            self.inject(fault).await;
            self.break_postponed();
            while let Some(repaired) = self.next_repair().await {
                repaired??;
            }
        }

        while let Some(repaired) = self.repairs.join_next().await {
            repaired??;
        }

        self.thaws.join_all().await;
        let fault_log = std::mem::take(&mut *self.fault_log.list());
        Ok(fault_log)
    }

    /// The next finished repair. With at most one server the nemesis waits for it; in a fleet it
    /// continues with other faults.
    async fn next_repair(&mut self) -> Option<Result<anyhow::Result<()>, tokio::task::JoinError>> {
        match self.targets.servers.len() {
            0 | 1 => self.repairs.join_next().await,
            _ => self.repairs.try_join_next(),
        }
    }

    /// Draws a fault of the round. A new round begins when none is left, so every kind occurs.
    fn next_fault(&mut self) -> Fault {
        if self.round.is_empty() {
            self.round = Fault::round(&self.targets.services());
        }

        let index = self.random.random_range(0..self.round.len());
        self.round.swap_remove(index)
    }

    /// A random node that is not frozen.
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

    async fn inject(&mut self, fault: Fault) {
        let short = self.random.random_range(0..1_500);
        let long = self.random.random_range(0..2_000);
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
                // With a server, enough nodes must remain to notice.
                let others = self.nodes.iter().filter(|other| !other.is_frozen()).count() - 1;
                let ms = FREEZE_MS + long;

                if others >= self.nodes.len() / 2 && node.freeze() {
                    // The thaw must come even if the nemesis does something else.
                    self.thaws.spawn(thaw_later(
                        node,
                        self.fault_log.clone(),
                        Duration::from_millis(ms),
                    ));
                    self.note(fault, ms, None, incarnation);
                }
            }
            Fault::DeclareDead => {
                if self.gateway.ask(Request::DeclareDead).await == Answer::Done {
                    self.note(fault, 0, None, incarnation);
                }
            }
            Fault::Server(service, server_fault) => self.break_server(service, server_fault, short),
            Fault::Partition(service) => {
                self.partition(service, number, incarnation, FREEZE_MS / 2 + 2 * long)
            }
        }
    }

    /// Injects a postponed fault once its server is repaired, in addition to the drawn one. The
    /// draws do not depend on how long a repair took.
    fn break_postponed(&mut self) {
        let is_repaired = |service| {
            self.targets
                .server(service)
                .is_some_and(|server| server.try_lock().is_ok())
        };
        let mut postponed = self.postponed.iter();
        if let Some(index) = postponed.position(|(service, ..)| is_repaired(*service)) {
            let (service, server_fault, ms) = self.postponed.remove(index);
            self.break_server(service, server_fault, ms);
        }
    }

    /// Injects a fault of a server. It is postponed while the server is broken.
    fn break_server(&mut self, service: Service, server_fault: ServerFault, ms: u64) {
        // The lock is taken until the server is repaired.
        let server = self.targets.server(service);
        let Some(server) = server.and_then(|server| server.try_lock_owned().ok()) else {
            let is_same = |(of, kind, _): &(Service, ServerFault, u64)| {
                (*of, *kind) == (service, server_fault)
            };
            if !self.postponed.iter().any(is_same) {
                self.postponed.push((service, server_fault, ms));
            }
            return;
        };

        // A freeze must be long enough to be noticed. In a fleet it is shorter, because it hides
        // other faults.
        let ms = match server_fault {
            ServerFault::Freeze if self.targets.is_database_alone() => SERVER_FREEZE_MS + ms,
            ServerFault::Freeze => 2_500 + ms,
            ServerFault::Kill | ServerFault::Wipe | ServerFault::Empty => ms,
        };
        let number = self.note(Fault::Server(service, server_fault), ms, None, None);
        let fault_log = self.fault_log.clone();

        // The repair runs alone, so that other faults can overlap with it.
        // Faults overlap, so a repair does not wait for the next fault.
        self.repairs.spawn(async move {
            let mut server = server;
            let down = Duration::from_millis(ms);
            match server_fault {
                ServerFault::Empty => server.empty().await?,
                ServerFault::Freeze => {
                    server.freeze()?;
                    tokio::time::sleep(down).await;
                    server.thaw().await?;
                }
                ServerFault::Kill | ServerFault::Wipe => {
                    server.kill().await?;
                    if server_fault == ServerFault::Wipe {
                        server.wipe().await?;
                    }
                    tokio::time::sleep(down).await;
                    server.start_again().await?;
                }
            }

            fault_log.mark_ended(number);
            Ok(())
        });
    }

    /// Breaks the link between a node and a server, and heals it after a while.
    fn partition(&mut self, service: Service, node: usize, incarnation: Option<String>, ms: u64) {
        let network_fault = NetworkFault::draw(&mut self.random);
        let Some(links) = self.targets.links.get(node).map(Arc::clone) else {
            return;
        };
        if !links.break_link(service, network_fault) {
            return;
        }

        let number = self.note(
            Fault::Partition(service),
            ms,
            Some(network_fault),
            incarnation,
        );
        let fault_log = self.fault_log.clone();
        self.repairs.spawn(async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            links.heal(service);
            fault_log.mark_ended(number);
            Ok(())
        });
    }

    /// Records a fault and returns its number.
    fn note(
        &mut self,
        fault: Fault,
        ms: u64,
        network_fault: Option<NetworkFault>,
        incarnation: Option<String>,
    ) -> usize {
        let count = match fault {
            Fault::Kill => &self.fault_counts.kills,
            Fault::Freeze | Fault::DeclareDead => &self.fault_counts.freezes,
            Fault::Server(..) => &self.fault_counts.servers,
            Fault::Partition(_) => &self.fault_counts.partitions,
        };

        count.fetch_add(1, Ordering::Relaxed);
        let mut fault_log = self.fault_log.list();
        fault_log.push(FaultRecord {
            at: self.clock.now().as_micros(),
            fault,
            ms,
            network_fault,
            incarnation,
            over: None,
        });

        fault_log.len() - 1
    }
}

/// Thaws the node after the others had this much time to notice. Time without the database does not
/// count.
async fn thaw_later(node: Arc<Node>, fault_log: FaultLog, mut left: Duration) {
    const STEP: Duration = Duration::from_millis(100);

    while !left.is_zero() {
        tokio::time::sleep(STEP).await;
        if !fault_log.is_database_down() {
            left = left.saturating_sub(STEP);
        }
    }

    node.thaw();
}
