//! Puts the components of a process together.

use std::sync::Arc;

use longhaul_domain::{
    Invalid,
    contract::{Notifier, RateLimiter, Store},
};
use longhaul_engine::{Engine, EngineBuilder, Files, metrics::Metrics, routing::Routing};
use longhaul_node::{Node, WorkerSettings};
use longhaul_sdk::{Client, Registry};
use longhaul_store::SqlStore;
use longhaul_transport::local::{LocalNotifier, MemoryStreamLog, PacedRateLimiter, StreamBounds};

use crate::{Builder, Longhaul};

/// What a process is made of, up to its engine. The engine is built last, because it has to know
/// whether the process has a node.
#[derive(Debug)]
pub(crate) struct Assembly {
    engine: EngineBuilder,
    limiter: Arc<dyn RateLimiter>,
    files: Files,
    routing: Routing,
    registry: Registry,
    sql: Option<SqlStore>,
}

impl Builder {
    /// Starts to connect to the servers, and makes everything that the process needs from them.
    pub(crate) fn assemble(mut self) -> Result<Assembly, Invalid> {
        if let Some(problem) = self.problem.take() {
            return Err(problem);
        }

        let notifier = self.notifier();
        let limits = self.limits;
        let fleet = self
            .fleet
            .connect(limits.clone(), Arc::clone(&self.clock))?;
        let limiter = PacedRateLimiter::new(fleet.limiter, limits, self.clock);

        // Only databases are measured and write messages for a broker.
        let catalog = self.registry.catalog(&self.routing);
        let metrics = Arc::new(Metrics::for_catalog(&catalog));
        let store: Arc<dyn Store> = match &self.sql {
            Some(sql) => {
                sql.write_messages(fleet.outbox);
                Arc::new(sql.clone().observed_by(Arc::clone(&metrics) as _))
            }
            None => self.store,
        };

        let engine = EngineBuilder::new(store, fleet.bus, notifier)
            .metrics(metrics)
            .store_clock(self.sql.as_ref().and_then(SqlStore::own_clock))
            .broker(fleet.broker)
            .progress_cache(fleet.progress)
            .dependencies(fleet.dependencies)
            .tier_source(self.tiers)
            .catalog(catalog)
            // Fair order reads the store in real time; a test store has its own clock.
            .fair_order(self.sql.is_some());

        Ok(Assembly {
            engine,
            limiter: Arc::new(limiter),
            files: self.files.open(),
            routing: self.routing,
            registry: self.registry,
            sql: self.sql,
        })
    }

    /// Wakes nodes: through the database if it can notify, else in this process alone. With a
    /// broker, database notifications are not needed.
    fn notifier(&self) -> Arc<dyn Notifier> {
        let database_notifier = match &self.sql {
            Some(store) if !self.fleet.has_broker() => store.notifier(),
            Some(_) | None => None,
        };

        database_notifier.unwrap_or_else(|| Arc::new(LocalNotifier::new()))
    }
}

impl Assembly {
    /// A process that runs no tasks.
    pub(crate) fn without_node(self) -> Longhaul {
        let engine = self.engine.build();
        let client = client(engine, self.files, self.routing, self.registry);

        Longhaul::new(Arc::new(client), self.limiter, self.sql)
    }

    /// A process with a node. [`Longhaul::run`] starts it.
    pub(crate) fn with_node(
        self,
        settings: WorkerSettings,
        is_alone: bool,
    ) -> (Longhaul, Arc<Node>) {
        let make_client = |engine| client(engine, self.files, self.routing, self.registry);
        let limiter = Arc::clone(&self.limiter);
        let node = Node::new(self.engine, make_client, limiter, settings, is_alone);

        (Longhaul::new(node.client(), self.limiter, self.sql), node)
    }
}

fn client(engine: Arc<Engine>, files: Files, routing: Routing, registry: Registry) -> Client {
    let streams = MemoryStreamLog::new(StreamBounds::default());
    Client::new(
        engine,
        Arc::new(streams),
        Arc::new(files),
        routing,
        registry,
    )
}
