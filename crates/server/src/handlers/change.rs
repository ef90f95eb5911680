//! Changes of one task: reschedule, cancel, retry.

use std::sync::Arc;

use axum::{
    extract::State,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use longhaul_api::{RetryRequest, RetryScope, SubmitAnswer, TaskChange, TaskView};
use longhaul_domain::{
    Invalid, QueueName, Status, contract::store, lifecycle::reschedule::Reschedule,
};

use super::{check_queue, show_live_progress};
use crate::{
    api::{Api, PathId},
    body::{JsonBody, OptionalBody},
    identity::Caller,
    openapi::Doc,
    problem::ApiError,
    reply,
};

pub(crate) fn patch_doc() -> Doc {
    Doc::new(
        "changeTask",
        "Changes time, priority, attempts or queue of a task",
    )
    .body::<TaskChange>()
    .answer::<TaskView>(200, "The changed task")
    .problems(&[400, 409, 413, 415, 422])
}

pub(crate) async fn patch(
    State(api): State<Arc<Api>>,
    caller: Caller,
    PathId(id): PathId,
    JsonBody(change): JsonBody<TaskChange>,
) -> Result<Response, ApiError> {
    check_queue(&api, &caller, change.queue.as_deref())?;

    let mut task = api
        .engine
        .reschedule(&caller.access(), id, &reschedule(change)?)
        .await?;
    show_live_progress(&api, std::slice::from_mut(&mut task)).await;
    Ok(reply::ok(&TaskView::from(task)))
}

pub(crate) fn reschedule(change: TaskChange) -> Result<Reschedule, Invalid> {
    let TaskChange {
        run_at,
        priority,
        max_attempts,
        queue,
    } = change;

    Ok(Reschedule {
        run_at: run_at.map(|moment| moment.0),
        priority,
        max_attempts,
        queue: queue.as_deref().map(QueueName::parse).transpose()?,
    })
}

pub(crate) fn cancel_doc() -> Doc {
    Doc::new(
        "cancelTask",
        "Cancels a task and its descendants; a task that has ended stays as it is",
    )
    .empty(204, "The task has ended")
    .problems(&[409])
}

pub(crate) async fn cancel(
    State(api): State<Arc<Api>>,
    caller: Caller,
    PathId(id): PathId,
) -> Result<Response, ApiError> {
    api.submissions.cancel(&caller.access(), id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(crate) fn retry_doc() -> Doc {
    Doc::new(
        "retryTask",
        "Retries a task that ended without success, or only its failed children",
    )
    .optional_body::<RetryRequest>()
    .answer::<SubmitAnswer>(202, "The task will run again")
    .problems(&[400, 409, 413, 415, 422])
}

pub(crate) async fn retry(
    State(api): State<Arc<Api>>,
    caller: Caller,
    PathId(id): PathId,
    OptionalBody(request): OptionalBody<RetryRequest>,
) -> Result<Response, ApiError> {
    let (scope, status) = match request.scope {
        RetryScope::Task => (store::RetryScope::Task, Status::Queued),
        RetryScope::FailedChildren => (store::RetryScope::FailedChildren, Status::Waiting),
    };
    api.engine.retry(&caller.access(), id, scope).await?;

    Ok(reply::json(
        StatusCode::ACCEPTED,
        &SubmitAnswer {
            task_id: id,
            status,
        },
    ))
}
