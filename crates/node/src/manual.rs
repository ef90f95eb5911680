//! A node without loops, which works a step at a time. For tests, which have to know when nothing
//! is left to do.

use std::sync::Arc;

use longhaul_domain::{StoreError, contract::RateLimiter};
use longhaul_sdk::Client;

use crate::{
    claimed::ClaimedTasks,
    claimer::claim_scopes,
    heartbeat,
    maintenance::job::{MaintenanceJob, Pass},
    node::Node,
    reporter,
    settings::WorkerSettings,
};

/// A node that works when its owner calls [`Self::step`]. Dropped, it is a node that died.
#[derive(Debug)]
pub struct ManualNode {
    node: Arc<Node>,
    maintenance: Vec<Arc<dyn MaintenanceJob>>,
}

impl ManualNode {
    /// Registers the node. No other process may have the store open.
    pub async fn start(
        client: Arc<Client>,
        limiter: Arc<dyn RateLimiter>,
        settings: WorkerSettings,
        maintenance: Vec<Arc<dyn MaintenanceJob>>,
    ) -> Result<Self, StoreError> {
        let node = Arc::new(Node::of_client(client, limiter, settings, true));
        node.join().await?;
        Ok(Self { node, maintenance })
    }

    /// Sends a heartbeat, does all maintenance, claims once what is due, runs the handlers to their
    /// ends and delivers their reports. Returns how many tasks it claimed.
    ///
    /// A cancel of this process reaches a handler while it runs. When this returns, the hooks have
    /// run, too.
    pub async fn step(&self) -> Result<usize, StoreError> {
        let node = &self.node;
        self.beat().await?;

        for job in &self.maintenance {
            // No lease is needed: there is no other node.
            while job.pass(node.engine()).await? == Pass::More {}
        }

        let claimed = self.claim().await?;
        loop {
            // Any order: a cancel that the handlers outrun is found by their reports.
            tokio::select! {
                () = node.attempts.wait() => break,
                () = node.engine().wakeups().wait_for_leases() => self.beat().await?,
            }
        }

        reporter::deliver_all(node).await?;
        node.client.hooks.wait().await;
        Ok(claimed)
    }

    async fn claim(&self) -> Result<usize, StoreError> {
        let scopes = self.node.in_flight().open_scopes();
        let mut batch = ClaimedTasks::new(&self.node);
        let round = claim_scopes(&self.node, &scopes, &mut batch).await;

        batch.start();
        Ok(round?.claimed)
    }

    /// Ends as `kill -9` does: handlers are dropped where they are, nothing is reported, and the
    /// node is found dead later. When this returns, no handler runs any more.
    pub async fn crash(self) {
        self.node.attempts.abort_all();
        self.node.attempts.wait().await;
    }

    async fn beat(&self) -> Result<(), StoreError> {
        match heartbeat::beat(&self.node).await {
            Err(StoreError::NodeLost) => {
                heartbeat::register_again(&self.node).await;
                Ok(())
            }
            beaten => beaten,
        }
    }
}

impl Drop for ManualNode {
    fn drop(&mut self) {
        self.node.attempts.abort_all();
    }
}
