//! Retry: a person replays a task, or the failed children of a parent.

use longhaul_domain::{
    StoreError, TaskId,
    contract::store::{Access, RetryScope},
    event::EventKind,
};

use crate::Engine;

impl Engine {
    pub async fn retry(
        &self,
        access: &Access,
        id: TaskId,
        scope: RetryScope,
    ) -> Result<(), StoreError> {
        self.store.retry_task(access, id, scope).await?;

        let event = match scope {
            RetryScope::Task => EventKind::Requeued,
            RetryScope::FailedChildren => EventKind::Waiting,
        };
        if let Some(task) = self.publish_by_id(id, event).await {
            self.publish_hint_of(&task);
        }

        // The queues of the children are not known here.
        self.wake();
        Ok(())
    }
}
