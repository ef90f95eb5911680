//! One method per endpoint.

use longhaul_domain::TaskId;
use reqwest::{Method, RequestBuilder};
use serde::{Serialize, de::DeserializeOwned};

use super::{Answer, Client, ClientError, header};
use crate::{
    change::{RetryRequest, RetryScope, TaskChange},
    page::Page,
    platform::{NodeView, QueueView, StatsView, TypeView, WhyView},
    submit::{BatchAnswer, BatchRequest, SubmitAnswer, SubmitRequest},
    task::{AttemptView, LogView, TaskSummary, TaskView},
};

/// The result of a call.
pub type Answered<T> = Result<Answer<T>, ClientError>;
/// The query of a list, as the API spells it.
pub type Filters<'a> = &'a [(&'a str, String)];

impl Client {
    /// With an idempotency key the request is safe to repeat.
    pub async fn submit(&self, order: &SubmitRequest, key: Option<&str>) -> Answered<SubmitAnswer> {
        let mut request = body(self.request(Method::POST, &["tasks"], &[]), order)?;
        if let Some(key) = key {
            request = request.header("idempotency-key", header("the idempotency key", key)?);
        }
        self.send(request).await
    }

    /// Submits several tasks, all or none.
    pub async fn submit_batch(&self, orders: &BatchRequest) -> Answered<BatchAnswer> {
        let request = self.request(Method::POST, &["tasks", "batch"], &[]);
        self.send(body(request, orders)?).await
    }

    pub async fn get(&self, id: TaskId) -> Answered<TaskView> {
        self.read(&["tasks", &id.to_string()], &[]).await
    }

    pub async fn list(&self, filters: Filters<'_>) -> Answered<Page<TaskSummary>> {
        self.read(&["tasks"], filters).await
    }

    pub async fn children(&self, id: TaskId, filters: Filters<'_>) -> Answered<Page<TaskSummary>> {
        self.read(&["tasks", &id.to_string(), "children"], filters)
            .await
    }

    pub async fn attempts(&self, id: TaskId) -> Answered<Page<AttemptView>> {
        self.read(&["tasks", &id.to_string(), "attempts"], &[])
            .await
    }

    pub async fn logs(&self, id: TaskId, filters: Filters<'_>) -> Answered<Page<LogView>> {
        self.read(&["tasks", &id.to_string(), "logs"], filters)
            .await
    }

    pub async fn why(&self, id: TaskId) -> Answered<WhyView> {
        self.read(&["tasks", &id.to_string(), "why"], &[]).await
    }

    pub async fn change(&self, id: TaskId, change: &TaskChange) -> Answered<TaskView> {
        let request = self.request(Method::PATCH, &["tasks", &id.to_string()], &[]);
        self.send(body(request, change)?).await
    }

    pub async fn cancel(&self, id: TaskId) -> Result<(), ClientError> {
        self.send_and_forget(self.request(Method::DELETE, &["tasks", &id.to_string()], &[]))
            .await
    }

    pub async fn retry(&self, id: TaskId, scope: RetryScope) -> Answered<SubmitAnswer> {
        let request = self.request(Method::POST, &["tasks", &id.to_string(), "retry"], &[]);
        self.send(body(request, &RetryRequest { scope })?).await
    }

    pub async fn queues(&self) -> Answered<Page<QueueView>> {
        self.read(&["queues"], &[]).await
    }

    pub async fn pause_queue(&self, name: &str) -> Result<(), ClientError> {
        self.send_and_forget(self.request(Method::POST, &["queues", name, "pause"], &[]))
            .await
    }

    pub async fn resume_queue(&self, name: &str) -> Result<(), ClientError> {
        self.send_and_forget(self.request(Method::POST, &["queues", name, "resume"], &[]))
            .await
    }

    pub async fn nodes(&self) -> Answered<Page<NodeView>> {
        self.read(&["nodes"], &[]).await
    }

    pub async fn stats(&self) -> Answered<StatsView> {
        self.read(&["stats"], &[]).await
    }

    pub async fn types(&self) -> Answered<Page<TypeView>> {
        self.read(&["types"], &[]).await
    }

    async fn read<T: DeserializeOwned>(
        &self,
        segments: &[&str],
        query: Filters<'_>,
    ) -> Answered<T> {
        self.send(self.request(Method::GET, segments, query)).await
    }
}

fn body(request: RequestBuilder, value: &impl Serialize) -> Result<RequestBuilder, ClientError> {
    let text =
        serde_json::to_string(value).map_err(|error| ClientError::Unsendable(error.to_string()))?;
    Ok(request
        .header("content-type", "application/json")
        .body(text))
}
