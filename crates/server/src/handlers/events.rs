//! Live streams of server-sent events.

use std::convert::Infallible;
use std::sync::Arc;

use axum::{
    extract::State,
    http::HeaderValue,
    response::{
        IntoResponse as _, Response,
        sse::{Event, Sse},
    },
};
use futures::Stream;
use longhaul_api::{TaskEventView, TaskSummary};

use crate::{
    api::{Api, PathId},
    event_stream::{About, events},
    identity::Caller,
    openapi::Doc,
    problem::ApiError,
};

pub(crate) fn of_task_doc() -> Doc {
    Doc::new(
        "followTask",
        "Follows one task: an event `state` with its summary, then one event per change",
    )
    .stream::<TaskEventView>("Server-sent events; the data of all but `state` is a TaskEvent")
    .refers_to::<TaskSummary>()
}

pub(crate) async fn of_task(
    State(api): State<Arc<Api>>,
    caller: Caller,
    PathId(id): PathId,
) -> Result<Response, ApiError> {
    follow(api, &caller, About::Task(id)).await
}

pub(crate) fn of_owner_doc() -> Doc {
    Doc::new(
        "followTasks",
        "Follows the caller's tasks: an event `state` with the open ones, then one event per \
         change",
    )
    .stream::<TaskEventView>("Server-sent events; the data of all but `state` is a TaskEvent")
    .refers_to::<TaskSummary>()
}

pub(crate) async fn of_owner(
    State(api): State<Arc<Api>>,
    caller: Caller,
) -> Result<Response, ApiError> {
    follow(api, &caller, About::Owner).await
}

async fn follow(api: Arc<Api>, caller: &Caller, about: About) -> Result<Response, ApiError> {
    Ok(event_stream(events(api, caller.access(), about).await?))
}

pub(super) fn event_stream(
    events: impl Stream<Item = Result<Event, Infallible>> + Send + 'static,
) -> Response {
    let mut response = Sse::new(events).into_response();
    // A buffering proxy would wait for the end of a response that has none.
    response
        .headers_mut()
        .insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
