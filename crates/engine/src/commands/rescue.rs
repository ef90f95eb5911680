//! Rescue: takes tasks from nodes that died.

use std::collections::BTreeSet;

use longhaul_domain::{
    StoreError,
    contract::store::{RescueRequest, Rescued},
    event::EventKind,
};

use crate::Engine;

impl Engine {
    /// One bounded pass of a rescue. Returns how many tasks it took.
    pub async fn rescue(&self, request: &RescueRequest) -> Result<usize, StoreError> {
        let rescued = self.store.rescue_tasks(request).await?;
        let taken = rescued.requeued.len() + rescued.quarantined.len();
        if taken > 0 {
            self.metrics.rescued(taken);
            tracing::warn!(
                requeued = rescued.requeued.len(),
                quarantined = rescued.quarantined.len(),
                "rescuer took tasks from nodes that died"
            );
            self.publish_rescued(rescued).await;
        }

        Ok(taken)
    }

    async fn publish_rescued(&self, rescued: Rescued) {
        for id in rescued.requeued {
            if let Some(task) = self.publish_by_id(id, EventKind::Requeued).await {
                self.publish_hint_of(&task);
            }
        }

        let mut parents = BTreeSet::new();
        for id in rescued.quarantined {
            if let Some(task) = self.publish_by_id(id, EventKind::DeadLettered).await {
                parents.extend(task.parent_id);
            }
        }

        self.publish_parents(parents).await;
        self.wake();
    }
}
