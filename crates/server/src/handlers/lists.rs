//! Lists of tasks, with keyset pagination.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use longhaul_api::{Page, TaskSummary};
use longhaul_domain::{
    Status,
    contract::store::Access,
    filter::{PageRequest, SortOrder, TaskFilter},
};

use super::show_live_progress;
use crate::{
    api::{Api, PathId},
    cursor,
    identity::Caller,
    openapi::Doc,
    problem::ApiError,
    query::{Query, list_parameters},
    reply,
};

pub(crate) fn tasks_doc() -> Doc {
    Doc::new("listTasks", "Lists the caller's tasks")
        .parameters(list_parameters(&[]))
        .page::<TaskSummary>("A page of tasks")
        .problems(&[400])
}

pub(crate) async fn tasks(
    State(api): State<Arc<Api>>,
    caller: Caller,
    query: Query,
) -> Result<Response, ApiError> {
    let (filter, page) = query.task_list(SortOrder::NewestFirst, &[])?;
    list(&api, &caller.access(), &filter, &page).await
}

pub(crate) fn dead_letters_doc() -> Doc {
    Doc::new(
        "listDeadLetters",
        "Lists the caller's tasks that have used up their attempts",
    )
    .parameters(list_parameters(&["status"]))
    .page::<TaskSummary>("A page of tasks")
    .problems(&[400])
}

pub(crate) async fn dead_letters(
    State(api): State<Arc<Api>>,
    caller: Caller,
    query: Query,
) -> Result<Response, ApiError> {
    let (mut filter, page) = query.task_list(SortOrder::NewestFirst, &["status"])?;
    filter.statuses = vec![Status::DeadLetter];
    list(&api, &caller.access(), &filter, &page).await
}

pub(crate) fn children_doc() -> Doc {
    Doc::new("listChildren", "Lists the children of a task, oldest first")
        .parameters(list_parameters(&["parentTaskId"]))
        .page::<TaskSummary>("A page of tasks")
        .problems(&[400])
}

pub(crate) async fn children(
    State(api): State<Arc<Api>>,
    caller: Caller,
    PathId(id): PathId,
    query: Query,
) -> Result<Response, ApiError> {
    let (mut filter, page) = query.task_list(SortOrder::OldestFirst, &["parentTaskId"])?;
    let access = caller.access();
    // A caller who may not see the parent gets a 404 instead of an empty list.
    api.engine.reads().get_task(&access, id).await?;
    filter.parent_id = Some(id);
    list(&api, &access, &filter, &page).await
}

async fn list(
    api: &Api,
    access: &Access,
    filter: &TaskFilter,
    page: &PageRequest,
) -> Result<Response, ApiError> {
    let mut found = api.engine.reads().list_tasks(access, filter, page).await?;
    show_live_progress(api, &mut found.items).await;
    let items: Vec<TaskSummary> = found.items.iter().map(TaskSummary::of).collect();
    let next_cursor = found.next.map(|id| cursor::of_task(page.order, id));
    Ok(reply::ok(&Page { items, next_cursor }))
}
