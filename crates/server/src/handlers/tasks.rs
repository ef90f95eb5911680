//! One task: its record, its attempts and its log lines.

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
    Doc::new("getTask", "Reads the whole record of a task").answer::<TaskView>(200, "The task")
}

pub(crate) async fn get(
    State(api): State<Arc<Api>>,
    caller: Caller,
    PathId(id): PathId,
) -> Result<Response, ApiError> {
    let mut task = api.engine.reads().get_task(&caller.access(), id).await?;
    show_live_progress(&api, std::slice::from_mut(&mut task)).await;
    Ok(reply::ok(&TaskView::from(task)))
}

pub(crate) fn attempts_doc() -> Doc {
    Doc::new(
        "listAttempts",
        "Lists the attempts of a task with their outcomes, oldest first",
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

    // One item more than the page shows whether there is another page.
    let access = caller.access();
    let store = api.engine.reads();
    let mut found = store.list_attempts(&access, id, after, size + 1).await?;
    let has_more = found.len() > size;
    found.truncate(size);

    let next_cursor = match found.last() {
        Some(last) if has_more => Some(cursor::of_number(u64::from(last.attempt))),
        Some(_) | None => None,
    };
    let items: Vec<AttemptView> = found.into_iter().map(AttemptView::from).collect();
    Ok(reply::ok(&Page { items, next_cursor }))
}

pub(crate) fn logs_doc() -> Doc {
    Doc::new("listLogs", "Lists the log lines of a task, oldest first")
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
    let access = caller.access();
    let store = api.engine.reads();
    let found = store.list_logs(&access, id, after, size).await?;
    let items: Vec<LogView> = found.items.into_iter().map(LogView::from).collect();

    Ok(reply::ok(&Page {
        items,
        next_cursor: found.next.map(cursor::of_number),
    }))
}
