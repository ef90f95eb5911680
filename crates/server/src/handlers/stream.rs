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
    let what = "The id of the last event that the reader has; what follows it is sent. 0, and without it: everything";
    Doc::new(
        "readOutput",
        "A task's output: an event `chunk` for each piece, until `end`",
    )
    .parameters(vec![header_parameter(LAST_EVENT_ID, what)])
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
    // Whose task it is comes first: what is wrong with a call is told to those alone who may make it.
    let reader = OutputReader::start(api, caller.access(), id).await?;
    Ok(event_stream(
        reader.after(last_event_id(&headers)?).into_stream(),
    ))
}

fn last_event_id(headers: &HeaderMap) -> Result<u64, ApiError> {
    let Some(value) = headers.get(LAST_EVENT_ID) else {
        return Ok(0);
    };
    let number = value
        .to_str()
        .ok()
        .and_then(|text| text.trim().parse().ok());
    number.ok_or_else(|| ApiError::BadFilter {
        field: LAST_EVENT_ID.to_owned(),
        problem: "is no offset".to_owned(),
        allowed: "the id of an event of this stream, a whole number from 0".to_owned(),
    })
}
