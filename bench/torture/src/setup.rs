//! The setup of a run: servers, network, the plan of each node, and the client's gateway.

use std::path::Path;
use std::sync::Arc;

use longhaul::Longhaul;
use tokio::sync::Mutex;

use crate::{
    cluster::{Cluster, FleetPlan, NodePlan},
    gateway::Gateway,
    http_gateway::HttpGateway,
    links::Links,
    nemesis::Targets,
    run::{Profile, Store},
    server::{Server, Service, free_port},
};

/// The number of worker nodes on a server store, and their slots.
const WORKERS: (usize, usize) = (4, 24);
/// The slots of a fleet's node. More, because more nodes fail at a time.
const FLEET_SLOTS: usize = 48;
/// The slots of the only node of an embedded store.
const EMBEDDED_SLOTS: usize = 64;
/// The API nodes of a fleet.
const API_NODES: usize = 2;

#[derive(Debug)]
pub(crate) struct Setup {
    /// The URL of the database without a fault proxy.
    pub(crate) url: String,
    pub(crate) targets: Targets,
    pub(crate) plans: Vec<NodePlan>,
    api_ports: Vec<u16>,
    /// The run's own connection, on a server store.
    own: Option<Arc<Longhaul>>,
}

impl Setup {
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

        // Opening the database first creates its schema.
        let own = Some(Arc::new(Longhaul::open(&url).await?.without_worker()?));
        let mut setup = Self {
            url,
            targets: Targets::default(),
            plans: Vec::new(),
            api_ports: Vec::new(),
            own,
        };

        if profile == Profile::Fleet {
            setup.build_fleet(database, name, dir, seed).await?;
        } else {
            let plan = NodePlan {
                url: setup.url.clone(),
                dir: dir.to_owned(),
                slots: WORKERS.1,
                fleet: None,
            };

            setup.plans = vec![plan; WORKERS.0];
            setup.take(database);
        }

        Ok(setup)
    }

    /// Workers first, then the API nodes. Each node has its own fault proxies.
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
            let broker = links.url(Service::Rabbitmq)?;
            let redis = links.url(Service::Redis)?;
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

    pub(crate) fn gateway(&self, cluster: &Cluster) -> anyhow::Result<Gateway> {
        Ok(match &self.own {
            None => Gateway::Piped(Arc::clone(&cluster.nodes[0].pipe)),
            Some(own) if self.api_ports.is_empty() => Gateway::Direct(Arc::clone(own)),
            Some(own) => Gateway::Http(Arc::new(HttpGateway::new(
                &self.api_ports,
                Arc::clone(own),
            )?)),
        })
    }

    /// Stops everything in an orderly way.
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
