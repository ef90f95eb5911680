//! Claims of tasks that a dead node left and that are reserved for its host for a while. A node of
//! that host asks for them before other nodes may have them.

use std::sync::Arc;
use std::time::Duration;

use longhaul_domain::StoreError;
use tokio::time::Instant;

use crate::{admission::ClaimFor, claimed::ClaimedTasks, node::Node, slots::Scope};

/// How often the node asks for them. After a start it asks at once.
pub(crate) const INTERVAL: Duration = Duration::from_secs(2);

/// When the node asked last.
#[derive(Debug, Default)]
pub(crate) struct HostAffinity {
    asked_at: Option<Instant>,
}

impl HostAffinity {
    /// Claims and starts the tasks that are reserved for this host, if it is time to ask. Returns
    /// how many there were.
    pub(crate) async fn claim(
        &mut self,
        node: &Arc<Node>,
        scopes: &[Scope],
    ) -> Result<usize, StoreError> {
        let is_due = self.asked_at.is_none_or(|at| at.elapsed() >= INTERVAL);
        if !node.settings.asks_for_host_affinity || !is_due {
            return Ok(0);
        }

        self.asked_at = Some(Instant::now());
        let mut claimed = 0;
        for scope in scopes {
            let mut batch = ClaimedTasks::new(node);
            let claim = node
                .claim_scope(scope, ClaimFor::ThisHost, &mut batch)
                .await?;
            batch.start();
            claimed += claim.map_or(0, |claim| claim.claimed);
        }

        Ok(claimed)
    }
}
