//! Operator commands on existing tasks: find, move, change many, pause a queue.

use longhaul_domain::{
    Invalid, QueueName, StoreError, TaskId, TaskRecord, bounds,
    contract::store::{Access, BulkChange, BulkOutcome, BulkRequest},
    filter::{Page, PageRequest, TaskFilter},
    lifecycle::reschedule::Reschedule,
    queue::Queue,
};

use crate::Longhaul;

impl Longhaul {
    /// The tasks that match all conditions, a page at a time.
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
    ) -> Result<Page<TaskRecord>, StoreError> {
        let reads = self.engine().reads();
        reads.list_tasks(&Access::All, filter, page).await
    }

    /// Changes due time, priority, queue or attempts of a task. An ended task is refused.
    pub async fn reschedule(
        &self,
        id: TaskId,
        change: &Reschedule,
    ) -> Result<TaskRecord, StoreError> {
        self.engine().reschedule(&Access::All, id, change).await
    }

    /// Cancels, replays or moves every matching task, oldest first. Answers with the numbers of
    /// matched and changed tasks. Running tasks of types that are not cancellable are spared, if
    /// this process knows the type. Each step is committed by itself; tasks created since the start
    /// are left alone. An empty filter is refused: to mean all tasks, name all statuses, for
    /// example.
    pub async fn change_all(
        &self,
        filter: &TaskFilter,
        change: BulkChange,
    ) -> Result<BulkOutcome, StoreError> {
        if *filter == TaskFilter::default() {
            let allowed = "at least one condition; all statuses are one that every task meets";
            return Err(Invalid::new("filter", "is empty", allowed).into());
        }

        let access = Access::All;
        let limit = bounds::MAINTENANCE_BATCH;
        let mut filter = filter.clone();
        let now = self.engine().reads().now().await?;

        filter.created_before = Some(filter.created_before.map_or(now, |before| before.min(now)));
        let mut request = BulkRequest {
            access,
            filter,
            change,
            spared: Vec::new(),
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

    /// Stops all claims from this queue until [`Self::resume_queue`]. Running tasks continue.
    pub async fn pause_queue(&self, name: &str) -> Result<(), StoreError> {
        self.engine().pause_queue(&QueueName::parse(name)?).await
    }

    /// Resumes a paused queue.
    pub async fn resume_queue(&self, name: &str) -> Result<(), StoreError> {
        self.engine().resume_queue(&QueueName::parse(name)?).await
    }

    /// All queues that had tasks, and whether they are paused.
    pub async fn queues(&self) -> Result<Vec<Queue>, StoreError> {
        self.engine().queues().list_queues().await
    }
}
