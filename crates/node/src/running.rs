//! A node with its loops, from its start to its shutdown.

use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::{NodeId, StoreError, bounds};
use longhaul_sdk::{StopReason, random};
use tokio::task::JoinSet;

use crate::{
    claimer,
    deadlines::within,
    heartbeat,
    in_flight::InFlight,
    maintenance::{
        self,
        job::{self, MaintenanceJob},
    },
    node::Node,
    queue_consumer, reporter,
};

/// How long handlers may take to stop after the drain time.
const STOP_WAIT: Duration = Duration::from_secs(2);
/// How long a shutdown tries to deliver the last reports.
const LAST_REPORTS: Duration = Duration::from_secs(10);
/// How long a shutdown waits for the store to answer the loops.
const LAST_ANSWERS: Duration = Duration::from_secs(10);
/// How often progress and log lines are written to the store.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);
/// How often a shutdown looks whether it can continue.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A running node. [`Self::stop`] drains it. Dropped without that, its tasks count as crashed.
#[derive(Debug)]
pub struct RunningNode {
    node: Arc<Node>,
    /// The claimer, and with a broker a consumer for each queue.
    claimers: JoinSet<()>,
    /// All other loops.
    loops: JoinSet<()>,
}

impl Node {
    /// Registers the node and starts its loops.
    pub async fn start(
        self: Arc<Self>,
        maintenance: Vec<Arc<dyn MaintenanceJob>>,
    ) -> Result<RunningNode, StoreError> {
        self.join().await?;

        // Two sets, because a shutdown ends the claimers first. The others then deliver what still
        // runs.
        let mut claimers = JoinSet::new();
        claimers.spawn(claimer::run(Arc::clone(&self)));
        queue_consumer::start_all(&self, &mut claimers);

        // A node that starts after an outage is the first one back. It counts the time from here,
        // so that the others get theirs.
        let silence = heartbeat::longest_silence(&self.settings);
        self.engine().note_store_answer(silence);

        let mut loops = JoinSet::new();
        loops.spawn(reporter::run(Arc::clone(&self)));
        loops.spawn(heartbeat::run(Arc::clone(&self)));
        loops.spawn(write_progress_and_logs(Arc::clone(&self)));
        if self.settings.maintenance {
            self.start_maintenance(maintenance, &mut loops);
        }

        Ok(RunningNode {
            node: self,
            claimers,
            loops,
        })
    }

    fn start_maintenance(
        &self,
        mut maintenance: Vec<Arc<dyn MaintenanceJob>>,
        loops: &mut JoinSet<()>,
    ) {
        if self.engine().broker().is_some() {
            maintenance.extend(maintenance::over_a_broker());
        }

        for job in maintenance {
            // A task each, so that a job that waits for the store holds up no other.
            loops.spawn(job::run(
                Arc::clone(self.engine()),
                self.id(),
                job,
                self.shutdown.closing.clone(),
                random::unit(),
            ));
        }
    }
}

impl RunningNode {
    /// The node's boot id.
    pub fn id(&self) -> NodeId {
        self.node.id()
    }

    /// How many handlers run now or are about to start.
    pub fn running(&self) -> usize {
        self.node.in_flight().running_or_reserved()
    }

    /// Claims no more tasks. Running handlers are not affected; [`Self::stop`] waits for them.
    pub fn begin_drain(&self) {
        self.node.shutdown.draining.cancel();
    }

    /// Drains the node. It claims nothing more, and running handlers may finish within the drain
    /// time. Then they are asked to stop, and what has not ended is handed back without a charge.
    /// Hooks that still run have a few seconds.
    pub async fn stop(mut self) {
        self.drain().await;
        self.stop_handlers().await;
        self.end_loops().await;

        // After the loops: a heartbeat that finds its node retired would register it again.
        if let Err(error) = within(LAST_ANSWERS, retire(&self.node)).await {
            tracing::warn!(%error, "node could not be retired; it will be found dead");
        }

        if self.node.in_flight().has_orphaned_slots() {
            tracing::warn!(
                "blocking handlers still run; dropping the runtime waits for them, \
                 shutdown_background does not"
            );
        }

        self.node.client.hooks.finish().await;
    }

    /// Ends the claims and waits for the handlers, at most the drain time.
    async fn drain(&mut self) {
        let node = &self.node;
        node.shutdown.draining.cancel();

        // Both: a claim under way may still start a handler.
        let claimers = &mut self.claimers;
        tokio::join!(wait_until(node, node.settings.drain, runs_nothing), async {
            while let Some(ended) = claimers.join_next().await {
                if ended.is_err() {
                    tracing::error!("a loop that claims has panicked");
                }
            }
        });
    }

    /// Asks the handlers to stop, drops those that do not, and waits for the last reports.
    async fn stop_handlers(&self) {
        let node = &self.node;
        node.attempts.stop_all(StopReason::Drain);
        wait_until(node, STOP_WAIT, runs_nothing).await;

        node.shutdown.dropping.cancel();
        // Once more: an eager start under way may have added a handler after the first call, and
        // only a handler that was asked to stop is dropped.
        node.attempts.stop_all(StopReason::Drain);
        wait_until(node, LAST_REPORTS, InFlight::is_clear).await;
    }

    async fn end_loops(&mut self) {
        self.node.shutdown.closing.cancel();
        let ended = async { while self.loops.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_ANSWERS, ended).await.is_err() {
            tracing::warn!("the store does not answer; the shutdown continues without it");
            self.loops.shutdown().await;
        }
    }
}

impl Drop for RunningNode {
    /// Without a stop: handlers are dropped where they are, and the node is found dead later.
    fn drop(&mut self) {
        // Draining first: the claimers must start no handler after all of them are aborted.
        self.node.shutdown.draining.cancel();
        self.node.shutdown.closing.cancel();
        self.node.attempts.abort_all();
    }
}

/// Hands back what the store still takes for running here: claims without an answer, and reports
/// that were not delivered. They would be charged with a crash once the node is gone. Nothing is
/// claimed, started or reported any more.
async fn retire(node: &Node) -> Result<(), StoreError> {
    let leases = node.engine().leases();
    loop {
        let strays = leases.hand_back_strays(node.id(), &[], 0).await?;
        if strays.len() < bounds::MAINTENANCE_BATCH {
            break;
        }
    }

    leases.retire_node(node.id()).await
}

fn runs_nothing(in_flight: &InFlight) -> bool {
    in_flight.running_or_reserved() == 0
}

/// Waits until the condition holds, at most for `timeout`.
async fn wait_until(node: &Node, timeout: Duration, holds: impl Fn(&InFlight) -> bool) {
    let waiting = async {
        while !holds(&node.in_flight()) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };

    if tokio::time::timeout(timeout, waiting).await.is_err() {
        tracing::debug!(
            ?timeout,
            "tasks are still in flight; the shutdown continues"
        );
    }
}

async fn write_progress_and_logs(node: Arc<Node>) {
    loop {
        // A close need not write: the executor has written the log lines of every ended attempt.
        tokio::select! {
            () = node.shutdown.closing.cancelled() => return,
            () = node.progress.wait_for_due() => {}
            () = tokio::time::sleep(FLUSH_INTERVAL) => {}
        }

        node.progress.write(node.engine()).await;
        node.logs.write(node.engine()).await;
    }
}
