//! Give up: fails waiting tasks that cannot be dispatched to any node.

use std::collections::BTreeSet;

use longhaul_domain::{StoreError, TaskId, bounds, contract::store::Failure, event::EventKind};

use crate::Engine;

impl Engine {
    /// Fails tasks of a queue whose hints the broker refuses: no node can ever learn of them.
    pub async fn give_up(
        &self,
        queue: &str,
        ids: &[TaskId],
        reason: &str,
    ) -> Result<(), StoreError> {
        if ids.is_empty() {
            return Ok(());
        }

        tracing::error!(
            queue,
            reason,
            tasks = ids.len(),
            "the broker refuses hints for tasks; failing them"
        );
        let failure = Failure {
            class: "not_dispatched".to_owned(),
            message: format!("could not be dispatched: {reason}"),
            detail: None,
        };

        for ids in ids.chunks(bounds::MAINTENANCE_BATCH) {
            let failed = self.store.fail_waiting(ids, &failure).await?;
            self.metrics.broker.not_dispatched(failed.len());

            let mut parents = BTreeSet::new();
            for id in failed {
                if let Some(task) = self.publish_by_id(id, EventKind::Failed).await {
                    parents.extend(task.parent_id);
                }
            }
            self.publish_parents(parents).await;
        }

        Ok(())
    }
}
