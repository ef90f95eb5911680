//! What a run is played with: the servers, the network, the plan of each node, and the client's way in.

use std::path::Path;
use std::sync::Arc;

use longhaul::Longhaul;
use tokio::sync::Mutex;

use crate::{
    cluster::{Cluster, FleetPlan, NodePlan},
    conductor::{Profile, Store},
    door::Door,
    http_door::HttpDoor,
    links::Links,
    nemesis::Targets,
    server::{Server, Service, free_port},
};

/// Worker nodes where the store is a server, and tasks that each runs at once.
const WORKERS: (usize, usize) = (4, 24);
/// The same in a fleet, where more of the nodes are broken at a time.
const FLEET_SLOTS: usize = 48;
/// An embedded store has one process.
const EMBEDDED_SLOTS: usize = 64;
/// Nodes of a fleet that answer the API.
const API_NODES: usize = 2;

#[derive(Debug)]
pub(crate) struct Stage {
    /// The database as the conductor reaches it, past all that is broken.
    pub(crate) url: String,
    pub(crate) targets: Targets,
    pub(crate) plans: Vec<NodePlan>,
    api_ports: Vec<u16>,
    /// The conductor's own connection, where the database is a server.
    own: Option<Arc<Longhaul>>,
}

impl Stage {
    pub(crate) async fn build(
        store: Store,
        profile: Profile,
        name: &str,
        dir: &Path,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let Some(database) = store.service() else {
            let url = format!("sqlite://{}/tasks.db", dir.display());
            let plan = NodePlan {
                url: url.clone(),
                dir: dir.to_owned(),
                slots: EMBEDDED_SLOTS,
                fleet: None,
            };
            return Ok(Self {
                url,
                targets: Targets::default(),
                plans: vec![plan],
                api_ports: Vec::new(),
                own: None,
            });
        };
        let database = Server::start(database, name).await?;
        let url = database.work_url()?;
        // The first to open the database makes its schema.
        let own = Some(Arc::new(Longhaul::open(&url).await?.without_worker()?));
        let mut stage = Self {
            url,
            targets: Targets::default(),
            plans: Vec::new(),
            api_ports: Vec::new(),
            own,
        };
        if profile == Profile::Fleet {
            stage.build_fleet(database, name, dir, seed).await?;
        } else {
            let plan = NodePlan {
                url: stage.url.clone(),
                dir: dir.to_owned(),
                slots: WORKERS.1,
                fleet: None,
            };
            stage.plans = vec![plan; WORKERS.0];
            stage.take(database);
        }
        Ok(stage)
    }

    /// Workers first, then the nodes of the API; each has a network of its own.
    async fn build_fleet(
        &mut self,
        database: Server,
        name: &str,
        dir: &Path,
        seed: u64,
    ) -> anyhow::Result<()> {
        let broker = Server::start(Service::Rabbitmq, name).await?;
        let redis = Server::start(Service::Redis, name).await?;
        for number in 0..WORKERS.0 + API_NODES {
            let links = Links::to(&[&database, &broker, &redis], seed ^ number as u64).await?;
            let api = if number < WORKERS.0 {
                None
            } else {
                Some(free_port()?)
            };
            self.api_ports.extend(api);
            let (broker, redis) = (links.url(Service::Rabbitmq)?, links.url(Service::Redis)?);
            self.plans.push(NodePlan {
                url: links.url(database.service)?,
                dir: dir.to_owned(),
                slots: FLEET_SLOTS,
                fleet: Some(FleetPlan { broker, redis, api }),
            });
            self.targets.links.push(Arc::new(links));
        }
        self.take(database);
        self.take(broker);
        self.take(redis);
        Ok(())
    }

    fn take(&mut self, server: Server) {
        self.targets
            .servers
            .push((server.service, Arc::new(Mutex::new(server))));
    }

    pub(crate) fn door(&self, cluster: &Cluster) -> anyhow::Result<Door> {
        Ok(match &self.own {
            None => Door::Piped(Arc::clone(&cluster.nodes[0].pipe)),
            Some(own) if self.api_ports.is_empty() => Door::Direct(Arc::clone(own)),
            Some(own) => Door::Http(Arc::new(HttpDoor::new(&self.api_ports, Arc::clone(own))?)),
        })
    }

    /// Stops everything as an operator would.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        if let Some(own) = self.own.and_then(Arc::into_inner) {
            own.stop().await;
        }
        for (_, server) in self.targets.servers.into_iter().rev() {
            if let Some(server) = Arc::into_inner(server) {
                server.into_inner().stop().await?;
            }
        }
        Ok(())
    }
}
