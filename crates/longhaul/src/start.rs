//! Starts a process: with a worker, with maintenance alone, or with neither.

use std::mem;

use longhaul_domain::StoreError;
use longhaul_node::{WorkerSettings, maintenance};
use longhaul_store::SqlStore;

use crate::{Builder, Longhaul};

impl Builder {
    /// Starts a worker for the registered types, with the background maintenance if
    /// [`WorkerSettings::maintenance`] says so.
    pub async fn start(self) -> Result<Longhaul, StoreError> {
        self.check_slots()?;
        self.start_node().await
    }

    /// Starts the background maintenance without a worker: this node runs no task.
    pub async fn start_maintenance(mut self) -> Result<Longhaul, StoreError> {
        self.worker.slots = 0;
        self.worker.queues = Vec::new();
        self.worker.maintenance = true;
        self.start_node().await
    }

    /// A Longhaul that submits, reads and changes tasks, but runs none.
    pub fn without_worker(mut self) -> Result<Longhaul, StoreError> {
        let applications = mem::take(&mut self.applications);
        let longhaul = self.assemble()?.without_node();

        Ok(longhaul.mount_all(applications)?)
    }

    async fn start_node(mut self) -> Result<Longhaul, StoreError> {
        let worker = self.worker_settings();
        let maintenance = self.maintenance.clone();
        let applications = mem::take(&mut self.applications);
        let is_alone = self.sql.as_ref().is_some_and(SqlStore::is_embedded);
        let queues: Vec<String> = worker.queues.iter().map(|it| it.name.clone()).collect();

        let (longhaul, node) = self.assemble()?.with_node(worker, is_alone);
        let longhaul = longhaul.mount_all(applications)?;
        longhaul.declare_topology(&queues).await?;

        let jobs = maintenance::all(&maintenance, None, &longhaul.client.files.store);
        longhaul.run(node, jobs).await
    }

    fn worker_settings(&self) -> WorkerSettings {
        let maintenance = &self.maintenance;

        // A node must renew its lease before it counts as dead.
        let mut worker = self.worker.clone().within_lease(maintenance.lease);
        worker.asks_for_host_affinity |= !maintenance.host_affinity.is_zero();
        worker
    }
}
