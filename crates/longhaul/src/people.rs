//! What people do with tasks that are there: find them, move them, change many at once, hold a queue.

use longhaul_domain::{
    Invalid, StoreError, Task as Record, TaskId, bounds,
    contract::store::{Access, BulkChange, BulkOutcome, BulkRequest},
    filter::{Page, PageRequest, TaskFilter},
    lifecycle::reschedule::Reschedule,
    queue::Queue,
};

use crate::Longhaul;

impl Longhaul {
    /// The tasks for which all conditions hold, a page at a time.
    ///
    /// ```no_run
    /// # async fn example(longhaul: &longhaul::Longhaul) -> Result<(), longhaul::StoreError> {
    /// use longhaul::{PageRequest, Status, TaskFilter};
    /// let filter = TaskFilter { statuses: vec![Status::DeadLetter], ..TaskFilter::default() };
    /// let mut page = PageRequest::first(100);
    /// loop {
    ///     let found = longhaul.list(&filter, &page).await?;
    ///     // … found.items …
    ///     let Some(next) = found.next else { break };
    ///     page.after = Some(next);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn list(
        &self,
        filter: &TaskFilter,
        page: &PageRequest,
    ) -> Result<Page<Record>, StoreError> {
        self.store().list_tasks(&Access::All, filter, page).await
    }

    /// Changes when, how urgently, where or how often a task is tried. One that has ended is refused.
    pub async fn reschedule(&self, id: TaskId, change: &Reschedule) -> Result<Record, StoreError> {
        self.engine().reschedule(&Access::All, id, change).await
    }

    /// Cancels, replays or moves every task for which the conditions hold, older ones first, and answers with how many
    /// matched and how many were changed. Running tasks of types that are not cancellable are spared, if this process knows
    /// the type. It goes through them in steps that are each committed; what is made meanwhile is left alone. A filter without
    /// any condition is refused: whoever means all tasks says so, by all statuses for example.
    pub async fn change_all(
        &self,
        filter: &TaskFilter,
        change: BulkChange,
    ) -> Result<BulkOutcome, StoreError> {
        if *filter == TaskFilter::default() {
            let allowed = "at least one condition; all statuses are one that every task meets";
            return Err(Invalid::new("filter", "is empty", allowed).into());
        }
        let spared = self
            .types()
            .filter(|kind| !kind.is_cancellable)
            .map(|kind| kind.name.clone())
            .collect();
        let (access, limit, mut filter) = (Access::All, bounds::MAINTENANCE_BATCH, filter.clone());
        let now = self.store().now().await?;
        filter.created_before = Some(filter.created_before.map_or(now, |before| before.min(now)));
        let mut request = BulkRequest {
            access,
            filter,
            change,
            spared,
            after: None,
            limit,
        };
        let mut all = BulkOutcome {
            matched: 0,
            changed: 0,
            next: None,
        };
        loop {
            let done = self.engine().change_all(request.clone()).await?;
            all.matched += done.matched;
            all.changed += done.changed;
            match done.next {
                None => return Ok(all),
                next => request.after = next,
            }
        }
    }

    /// Has no node claim from this queue until [`Self::resume_queue`]. What runs goes on.
    pub async fn pause_queue(&self, name: &str) -> Result<(), StoreError> {
        self.engine().pause_queue(name).await
    }

    /// Opens a paused queue.
    pub async fn resume_queue(&self, name: &str) -> Result<(), StoreError> {
        self.engine().resume_queue(name).await
    }

    /// The queues that tasks were in, and whether they are paused.
    pub async fn queues(&self) -> Result<Vec<Queue>, StoreError> {
        self.store().list_queues().await
    }
}
