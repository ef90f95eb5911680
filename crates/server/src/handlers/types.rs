//! The types that tasks can be submitted of.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use longhaul_api::{Page, TypeView, WireDuration};
use longhaul_engine::catalog::TaskType;

use crate::{api::Api, openapi::Doc, reply};

pub(crate) fn list_doc() -> Doc {
    Doc::new(
        "listTypes",
        "The types that tasks can be submitted of, with their schemas",
    )
    .page::<TypeView>("All types")
}

pub(crate) async fn list(State(api): State<Arc<Api>>) -> Response {
    let items: Vec<TypeView> = api.catalog.types().map(view).collect();
    reply::ok(&Page {
        items,
        next_cursor: None,
    })
}

fn view(kind: &TaskType) -> TypeView {
    TypeView {
        task_type: kind.name.clone(),
        parameters: kind.params_schema.clone(),
        result: kind.result_schema.clone(),
        progress: kind.progress_schema.clone(),
        queue: kind.queue.clone(),
        expected_duration: kind.expected_duration.map(WireDuration),
        max_attempts: kind.max_attempts,
        timeout: kind.timeout.map(WireDuration),
        cancellable: kind.is_cancellable,
    }
}
