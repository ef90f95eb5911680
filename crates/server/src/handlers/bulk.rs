//! Bulk changes of the caller's tasks that match a filter.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use longhaul_api::{BulkAnswer, TaskChange};
use longhaul_domain::{
    bounds,
    contract::store::{BulkChange, BulkRequest},
    filter::SortOrder,
};

use super::{change::reschedule as change_of, check_queue};
use crate::{
    api::Api,
    body::{EmptyBody, JsonBody},
    cursor,
    identity::Caller,
    openapi::Doc,
    problem::ApiError,
    query::{Query, bulk_parameters},
    reply,
};

fn doc(name: &'static str, summary: &'static str) -> Doc {
    Doc::new(name, summary)
        .parameters(bulk_parameters())
        .answer::<BulkAnswer>(200, "The number of matching and of changed tasks")
        .problems(&[400, 413, 422])
}

pub(crate) fn cancel_doc() -> Doc {
    doc(
        "cancelTasks",
        "Cancels the matching tasks, except running ones of types that are not cancellable",
    )
}

pub(crate) async fn cancel(
    State(api): State<Arc<Api>>,
    caller: Caller,
    query: Query,
    _: EmptyBody,
) -> Result<Response, ApiError> {
    change(&api, &caller, &query, BulkChange::Cancel).await
}

pub(crate) fn retry_doc() -> Doc {
    doc(
        "retryTasks",
        "Retries the matching tasks that ended without success",
    )
}

pub(crate) async fn retry(
    State(api): State<Arc<Api>>,
    caller: Caller,
    query: Query,
    _: EmptyBody,
) -> Result<Response, ApiError> {
    change(&api, &caller, &query, BulkChange::Retry).await
}

pub(crate) fn reschedule_doc() -> Doc {
    doc(
        "rescheduleTasks",
        "Changes time, priority, attempts or queue of the matching tasks",
    )
    .body::<TaskChange>()
    .problems(&[415])
}

pub(crate) async fn reschedule(
    State(api): State<Arc<Api>>,
    caller: Caller,
    query: Query,
    JsonBody(wanted): JsonBody<TaskChange>,
) -> Result<Response, ApiError> {
    check_queue(&api, &caller, wanted.queue.as_deref())?;
    let wanted = change_of(wanted)?;
    wanted.check()?;
    change(&api, &caller, &query, BulkChange::Reschedule(wanted)).await
}

async fn change(
    api: &Api,
    caller: &Caller,
    query: &Query,
    change: BulkChange,
) -> Result<Response, ApiError> {
    let (filter, after) = query.bulk()?;
    let request = BulkRequest {
        access: caller.access(),
        filter,
        change,
        spared: Vec::new(),
        after,
        limit: bounds::MAINTENANCE_BATCH,
    };

    let done = api.engine.change_all(request).await?;
    let next_cursor = done
        .next
        .map(|id| cursor::of_task(SortOrder::OldestFirst, id));

    Ok(reply::ok(&BulkAnswer {
        matched: done.matched,
        changed: done.changed,
        next_cursor,
    }))
}
