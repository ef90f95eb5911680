//! The commands that change a task's status.

use async_trait::async_trait;
use longhaul_domain::{
    NewTask, StoreError, TaskId, TaskRecord,
    contract::store::{
        Access, AttemptReport, BulkOutcome, BulkRequest, Cancelled, ClaimNamed, ClaimRequest,
        Expired, Failure, RescueRequest, Rescued, RetryScope, Submitted, TaskCommands, Verdict,
    },
    lifecycle::{expire::Overdue, reschedule::Reschedule},
};

use super::MemoryStore;

#[async_trait]
impl TaskCommands for MemoryStore {
    fn next_id(&self) -> TaskId {
        let (mut state, now) = self.begin();
        state.next_id(now)
    }

    async fn submit_task(&self, task: NewTask) -> Result<Submitted, StoreError> {
        let (mut state, now) = self.begin();
        Ok(state.submit(&[task], now)?[0])
    }

    async fn submit_tasks(&self, tasks: Vec<NewTask>) -> Result<Vec<Submitted>, StoreError> {
        let (mut state, now) = self.begin();
        state.submit(&tasks, now)
    }

    async fn submit_and_claim(
        &self,
        task: NewTask,
        request: &ClaimRequest,
    ) -> Result<(Submitted, Vec<TaskRecord>), StoreError> {
        let (mut state, now) = self.begin();

        // An invalid request is refused before anything is submitted.
        let without_queues = ClaimRequest {
            queues: Vec::new(),
            ..request.clone()
        };
        state.claim(&without_queues, now)?;

        let submitted = state.submit(&[task], now)?[0];
        Ok((submitted, state.claim(request, now)?))
    }

    async fn claim_tasks(&self, request: &ClaimRequest) -> Result<Vec<TaskRecord>, StoreError> {
        self.node_call("claim_tasks", |state, now| state.claim(request, now))
            .await
    }

    async fn claim_named(&self, request: &ClaimNamed) -> Result<Vec<TaskRecord>, StoreError> {
        self.node_call("claim_named", |state, now| state.claim_named(request, now))
            .await
    }

    async fn claim_host_affinity(
        &self,
        request: &ClaimRequest,
    ) -> Result<Vec<TaskRecord>, StoreError> {
        self.node_call("claim_host_affinity", |state, now| {
            state.claim_host_affinity(request, now)
        })
        .await
    }

    async fn finish_tasks(&self, reports: &[AttemptReport]) -> Result<Vec<Verdict>, StoreError> {
        let refused = self
            .refused_finishes
            .lock()
            .expect("a thread panicked under this lock")
            .pop_front();
        if let Some(error) = refused {
            return Err(error);
        }

        self.node_call("finish_tasks", |state, now| state.finish(reports, now))
            .await
    }

    async fn cancel_task(&self, access: &Access, id: TaskId) -> Result<Cancelled, StoreError> {
        let (mut state, now) = self.begin();
        state.cancel_task(access, id, now)
    }

    async fn retry_task(
        &self,
        access: &Access,
        id: TaskId,
        scope: RetryScope,
    ) -> Result<(), StoreError> {
        let (mut state, now) = self.begin();
        state.retry_task(access, id, scope, now)
    }

    async fn reschedule_task(
        &self,
        access: &Access,
        id: TaskId,
        change: &Reschedule,
    ) -> Result<TaskRecord, StoreError> {
        let (mut state, now) = self.begin();
        state.reschedule_task(access, id, change, now)
    }

    async fn change_tasks(&self, request: &BulkRequest) -> Result<BulkOutcome, StoreError> {
        let (mut state, now) = self.begin();
        state.change_tasks(request, now)
    }

    async fn rescue_tasks(&self, request: &RescueRequest) -> Result<Rescued, StoreError> {
        self.node_call("rescue_tasks", |state, now| state.rescue(request, now))
            .await
    }

    async fn expire_tasks(&self, overdue: &Overdue, limit: usize) -> Result<Expired, StoreError> {
        let (mut state, now) = self.begin();
        state.expire(overdue, limit, now)
    }

    async fn fail_waiting(
        &self,
        ids: &[TaskId],
        failure: &Failure,
    ) -> Result<Vec<TaskId>, StoreError> {
        let (mut state, now) = self.begin();
        state.fail_waiting(ids, failure, now)
    }
}
