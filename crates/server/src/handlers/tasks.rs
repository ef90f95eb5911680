//! One task: its record, its attempts, its log lines.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use longhaul_api::{AttemptView, LogView, Page, TaskView};

use super::show_live_progress;
use crate::{
    api::{Api, PathId},
    cursor,
    identity::Caller,
    openapi::Doc,
    problem::ApiError,
    query::{Query, numbered_parameters},
    reply,
};

pub(crate) fn get_doc() -> Doc {
    Doc::new("getTask", "The whole record of a task").answer::<TaskView>(200, "The task")
}

pub(crate) async fn get(
    State(api): State<Arc<Api>>,
    caller: Caller,
    PathId(id): PathId,
) -> Result<Response, ApiError> {
    let mut task = api.engine.store.get_task(&caller.access(), id).await?;
    show_live_progress(&api, std::slice::from_mut(&mut task)).await;
    Ok(reply::ok(&TaskView::from(task)))
}

pub(crate) fn attempts_doc() -> Doc {
    Doc::new(
        "listAttempts",
        "Every attempt of a task with its outcome, the first one first",
    )
    .parameters(numbered_parameters())
    .page::<AttemptView>("A page of attempts")
    .problems(&[400])
}

pub(crate) async fn attempts(
    State(api): State<Arc<Api>>,
    caller: Caller,
    PathId(id): PathId,
    query: Query,
) -> Result<Response, ApiError> {
    let (after, size) = query.numbered()?;
    let after = u32::try_from(after.unwrap_or(0)).unwrap_or(u32::MAX);
    // One more than is shown tells whether there is another page.
    let mut found = api
        .engine
        .store
        .list_attempts(&caller.access(), id, after, size + 1)
        .await?;
    let is_more = found.len() > size;
    found.truncate(size);
    let last = found
        .last()
        .filter(|_| is_more)
        .map(|one| u64::from(one.attempt));
    let items: Vec<AttemptView> = found.into_iter().map(AttemptView::from).collect();
    let next_cursor = last.map(cursor::of_number);
    Ok(reply::ok(&Page { items, next_cursor }))
}

pub(crate) fn logs_doc() -> Doc {
    Doc::new(
        "listLogs",
        "The log lines that are kept with a task, the oldest first",
    )
    .parameters(numbered_parameters())
    .page::<LogView>("A page of lines")
    .problems(&[400])
}

pub(crate) async fn logs(
    State(api): State<Arc<Api>>,
    caller: Caller,
    PathId(id): PathId,
    query: Query,
) -> Result<Response, ApiError> {
    let (after, size) = query.numbered()?;
    let found = api
        .engine
        .store
        .list_logs(&caller.access(), id, after, size)
        .await?;
    let items: Vec<LogView> = found.items.into_iter().map(LogView::from).collect();
    Ok(reply::ok(&Page {
        items,
        next_cursor: found.next.map(cursor::of_number),
    }))
}
