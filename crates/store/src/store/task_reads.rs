//! Reading tasks and what belongs to them.

use async_trait::async_trait;
use longhaul_domain::{
    Attempt, LogPage, StoreError, TaskId, TaskRecord, Timestamp,
    artifact::ArtifactRecord,
    contract::store::{Access, TaskReads},
    filter::{Page, PageRequest, TaskFilter},
    ids::ArtifactId,
    statistics::{CountFilter, TaskCount},
};

use super::SqlStore;
use crate::operations::{
    artifacts::{GetArtifact, ListArtifacts},
    logs::ListLogs,
    read::{GetTask, ListAttempts, ListTasks, Now},
};

#[async_trait]
impl TaskReads for SqlStore {
    async fn now(&self) -> Result<Timestamp, StoreError> {
        let now = self.run("now", Now).await?;
        self.database.shared().note_store_time(now);
        Ok(now)
    }

    async fn get_task(&self, access: &Access, id: TaskId) -> Result<TaskRecord, StoreError> {
        let access = access.clone();
        self.run("get_task", GetTask { access, id }).await
    }

    async fn list_tasks(
        &self,
        access: &Access,
        filter: &TaskFilter,
        page: &PageRequest,
    ) -> Result<Page<TaskRecord>, StoreError> {
        let operation = ListTasks {
            access: access.clone(),
            filter: filter.clone(),
            page: *page,
        };
        self.run("list_tasks", operation).await
    }

    async fn list_attempts(
        &self,
        access: &Access,
        id: TaskId,
        after: u32,
        limit: usize,
    ) -> Result<Vec<Attempt>, StoreError> {
        let operation = ListAttempts {
            access: access.clone(),
            id,
            after,
            limit,
        };
        self.run("list_attempts", operation).await
    }

    async fn list_logs(
        &self,
        access: &Access,
        id: TaskId,
        after: Option<u64>,
        limit: usize,
    ) -> Result<LogPage, StoreError> {
        let operation = ListLogs {
            access: access.clone(),
            id,
            after,
            limit,
        };
        self.run("list_logs", operation).await
    }

    async fn list_artifacts(
        &self,
        access: &Access,
        id: TaskId,
    ) -> Result<Vec<ArtifactRecord>, StoreError> {
        let access = access.clone();
        self.run("list_artifacts", ListArtifacts { access, id })
            .await
    }

    async fn get_artifact(&self, id: ArtifactId) -> Result<ArtifactRecord, StoreError> {
        self.run("get_artifact", GetArtifact { id }).await
    }

    async fn read_task_counts(&self, filter: &CountFilter) -> Result<Vec<TaskCount>, StoreError> {
        self.run("read_task_counts", filter.clone()).await
    }
}
