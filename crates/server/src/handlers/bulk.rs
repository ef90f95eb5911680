//! One change to all of the caller's tasks that match the filters of a list.

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
    body::{JsonBody, NoBody},
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
        .answer::<BulkAnswer>(200, "How many tasks matched, and how many were changed")
        .problems(&[400, 413, 422])
}

pub(crate) fn cancel_doc() -> Doc {
    doc(
        "cancelTasks",
        "Cancels the tasks that match; running ones of types that are not cancellable are left alone",
    )
}

pub(crate) async fn cancel(
    State(api): State<Arc<Api>>,
    caller: Caller,
    query: Query,
    _: NoBody,
) -> Result<Response, ApiError> {
    change(&api, &caller, &query, BulkChange::Cancel).await
}

pub(crate) fn retry_doc() -> Doc {
    doc("retryTasks", "Replays the tasks that match and ended badly")
}

pub(crate) async fn retry(
    State(api): State<Arc<Api>>,
    caller: Caller,
    query: Query,
    _: NoBody,
) -> Result<Response, ApiError> {
    change(&api, &caller, &query, BulkChange::Retry).await
}

pub(crate) fn reschedule_doc() -> Doc {
    doc(
        "rescheduleTasks",
        "Changes time, priority, attempts or queue of the tasks that match",
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
    let wanted = change_of(wanted);
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
    let access = caller.access();
    let spared = api
        .catalog
        .types()
        .filter(|kind| !kind.is_cancellable)
        .map(|kind| kind.name.clone())
        .collect();
    let request = BulkRequest {
        access,
        filter,
        change,
        spared,
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
