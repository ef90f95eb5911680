//! The commands that change a task's status.

use async_trait::async_trait;
use longhaul_domain::{
    NewTask, StoreError, TaskId, TaskRecord,
    contract::store::{
        Access, AttemptReport, BulkOutcome, BulkRequest, Cancelled, ClaimNamed, ClaimRequest,
        Expired, Failure, RescueRequest, Rescued, RetryScope, StoreOperation, Submitted,
        TaskCommands, Verdict,
    },
    lifecycle::{expire::Overdue, reschedule::Reschedule},
};

use super::SqlStore;
use crate::{
    operations::{
        cancel::CancelTask, expire::ExpireTasks, fail_waiting::FailWaiting, finish,
        host_affinity::ClaimHostAffinity, reschedule::RescheduleTask, retry::RetryTask,
        submit::SubmitAndClaim,
    },
    session::Operation as _,
    submitter,
};

/// A command of more than one operation.
const fn update(name: &'static str) -> StoreOperation {
    StoreOperation {
        name,
        is_update: true,
    }
}

#[async_trait]
impl TaskCommands for SqlStore {
    fn next_id(&self) -> TaskId {
        self.database.shared().next_id()
    }

    async fn submit_task(&self, task: NewTask) -> Result<Submitted, StoreError> {
        let work = async {
            task.check()?;
            if task.parent.is_none() {
                return self.batcher.submit(task).await;
            }

            let deadline = self.database.deadline();
            let submitted = submitter::submit(&self.database, deadline, vec![task]).await?;
            Ok(submitted[0])
        };
        self.observe(update("submit_task"), work).await
    }

    async fn submit_tasks(&self, tasks: Vec<NewTask>) -> Result<Vec<Submitted>, StoreError> {
        let work = submitter::submit(&self.database, self.database.deadline(), tasks);
        self.observe(update("submit_tasks"), work).await
    }

    async fn submit_and_claim(
        &self,
        task: NewTask,
        request: &ClaimRequest,
    ) -> Result<(Submitted, Vec<TaskRecord>), StoreError> {
        let work = async {
            task.check()?;
            request.check()?;
            let deadline = self.database.deadline();
            let submit = submitter::prepare(&self.database, deadline, vec![task]).await?;
            let claim = request.clone();

            let both = SubmitAndClaim { submit, claim };
            let (submitted, claimed) = self.database.run(deadline, both).await?;
            Ok((submitted[0], claimed))
        };
        self.observe(update("submit_and_claim"), work).await
    }

    async fn claim_tasks(&self, request: &ClaimRequest) -> Result<Vec<TaskRecord>, StoreError> {
        self.run("claim_tasks", request.clone()).await
    }

    async fn claim_named(&self, request: &ClaimNamed) -> Result<Vec<TaskRecord>, StoreError> {
        self.run("claim_named", request.clone()).await
    }

    async fn claim_host_affinity(
        &self,
        request: &ClaimRequest,
    ) -> Result<Vec<TaskRecord>, StoreError> {
        let operation = ClaimHostAffinity(request.clone());
        self.run("claim_host_affinity", operation).await
    }

    async fn finish_tasks(&self, reports: &[AttemptReport]) -> Result<Vec<Verdict>, StoreError> {
        let work = finish::finish_tasks(&self.database, reports);
        self.observe(update("finish_tasks"), work).await
    }

    async fn cancel_task(&self, access: &Access, id: TaskId) -> Result<Cancelled, StoreError> {
        let access = access.clone();
        self.run("cancel_task", CancelTask { access, id }).await
    }

    async fn retry_task(
        &self,
        access: &Access,
        id: TaskId,
        scope: RetryScope,
    ) -> Result<(), StoreError> {
        let access = access.clone();
        let operation = RetryTask { access, id, scope };
        self.run("retry_task", operation).await
    }

    async fn reschedule_task(
        &self,
        access: &Access,
        id: TaskId,
        change: &Reschedule,
    ) -> Result<TaskRecord, StoreError> {
        let operation = RescheduleTask {
            access: access.clone(),
            id,
            change: change.clone(),
        };
        self.run("reschedule_task", operation).await
    }

    async fn change_tasks(&self, request: &BulkRequest) -> Result<BulkOutcome, StoreError> {
        self.run("change_tasks", request.clone()).await
    }

    async fn rescue_tasks(&self, request: &RescueRequest) -> Result<Rescued, StoreError> {
        self.run("rescue_tasks", *request).await
    }

    async fn expire_tasks(&self, overdue: &Overdue, limit: usize) -> Result<Expired, StoreError> {
        let overdue = *overdue;
        let operation = ExpireTasks { overdue, limit };
        self.run("expire_tasks", operation).await
    }

    async fn fail_waiting(
        &self,
        ids: &[TaskId],
        failure: &Failure,
    ) -> Result<Vec<TaskId>, StoreError> {
        let operation = FailWaiting {
            ids: ids.to_vec(),
            failure: failure.clone(),
        };
        self.run("fail_waiting", operation).await
    }
}
