//! A task's output, as server-sent events.

use std::sync::Arc;

use axum::{extract::State, http::HeaderMap, response::Response};
use longhaul_api::{OutputChunk, OutputEnd, OutputReset, OutputRewind};

use super::events::event_stream;
use crate::{
    api::{Api, PathId},
    identity::Caller,
    openapi::{Doc, header_parameter},
    output::OutputReader,
    problem::ApiError,
};

const LAST_EVENT_ID: &str = "Last-Event-ID";

pub(crate) fn of_task_doc() -> Doc {
    let last_event_id = "The id of the last received event; the stream continues after it. \
                         By default, or with 0, it starts at the beginning";

    Doc::new(
        "readOutput",
        "Streams a task's output: one event `chunk` per piece, then `end`",
    )
    .parameters(vec![header_parameter(LAST_EVENT_ID, last_event_id)])
    .stream::<OutputChunk>(
        "Server-sent events `chunk`, `rewind`, `reset` and `end`; their ids are offsets",
    )
    .refers_to::<OutputRewind>()
    .refers_to::<OutputReset>()
    .refers_to::<OutputEnd>()
    .problems(&[400])
}

pub(crate) async fn of_task(
    State(api): State<Arc<Api>>,
    caller: Caller,
    PathId(id): PathId,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    // The access check comes first: a caller who may not see the task learns nothing else.
    let reader = OutputReader::start(api, caller.access(), id).await?;
    let reader = reader.after(last_event_id(&headers)?);
    Ok(event_stream(reader.into_stream()))
}

fn last_event_id(headers: &HeaderMap) -> Result<u64, ApiError> {
    let Some(value) = headers.get(LAST_EVENT_ID) else {
        return Ok(0);
    };

    let text = value.to_str().unwrap_or("");
    let offset = text.trim().parse().ok();
    offset.ok_or_else(|| ApiError::BadFilter {
        field: LAST_EVENT_ID.to_owned(),
        problem: "is not an offset".to_owned(),
        allowed: "the id of an event of this stream, a whole number from 0".to_owned(),
    })
}
